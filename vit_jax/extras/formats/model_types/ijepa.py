"""I-JEPA of Transformers: a ViT without class token, whose head sees the mean of the patches."""

from vit_jax.extras.formats.model_type import ModelType, rules
from vit_jax.extras.formats.model_types.blocks import OF_VIT, SIZES_OF_VIT, sizes
from vit_jax.weights.card import one_of

PLAIN = "IJepaModel"
HEADED = "IJepaForImageClassification"
IJEPA = ModelType(
  plain=PLAIN,
  headed=HEADED,
  names=OF_VIT,
  prefix="ijepa.",
  computed=rules(HEADED, PLAIN, kinds=("ijepa",), **SIZES_OF_VIT),
  sizes=sizes,
  fields={"pool": one_of("gap")},
  position_resizing="bicubic",
  processor="ViT",
  left_out=r"(ijepa\.)?(pooler\..*|embeddings\.mask_token)",
)
