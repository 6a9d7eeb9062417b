"""DeiT of Transformers, with a distillation token behind the class token (Touvron et al., 2021).

With a teacher, the logits are the mean of two heads, one on each token. Here one head sees both
tokens side by side, with half of the weights of each. The library's other classifier sees the class
token alone.
"""

import numpy as np

from vit_jax.extras.formats.model_type import ModelType, rules
from vit_jax.extras.formats.model_types.blocks import OF_VIT, SIZES_OF_VIT, sizes
from vit_jax.weights.card import one_of
from vit_jax.weights.translation import DENSE, SAME, Table, layer

PLAIN = "DeiTModel"
HEADED = "DeiTForImageClassificationWithTeacher"
OF_CLASS_TOKEN = "DeiTForImageClassification"
# The library's heads, as `_here` takes them and `_there` makes them.
_HEADS = Table(
  *layer("head_class", "cls_classifier", DENSE),
  *layer("head_distilled", "distillation_classifier", DENSE),
  *layer("head_alone", "classifier", DENSE),
)


def _here(flat: dict, settings: dict) -> dict:
  """The arrays with one head on both tokens, its kernel (2 D, classes)."""
  if "head_alone/kernel" in flat:
    kernel = flat.pop("head_alone/kernel")
    kernel = np.concatenate([kernel, np.zeros_like(kernel)])
    return flat | {"head/kernel": kernel, "head/bias": flat.pop("head_alone/bias")}
  if "head_class/kernel" not in flat:
    return flat
  kernels = [flat.pop(f"head_{name}/kernel") for name in ("class", "distilled")]
  biases = [flat.pop(f"head_{name}/bias") for name in ("class", "distilled")]
  return flat | {"head/kernel": np.concatenate(kernels) / 2, "head/bias": sum(biases) / 2}


def _there(flat: dict) -> dict:
  """The arrays with a head on each token, whose mean is our head."""
  if "head/kernel" not in flat:
    return flat
  flat = dict(flat)
  kernels = np.split(2 * np.asarray(flat.pop("head/kernel")), 2)
  bias = flat.pop("head/bias")
  for name, kernel in zip(("class", "distilled"), kernels, strict=True):
    flat |= {f"head_{name}/kernel": kernel, f"head_{name}/bias": bias}
  return flat


DEIT = ModelType(
  plain=PLAIN,
  headed=HEADED,
  names=OF_VIT + Table(("distillation_tokens", "embeddings.distillation_token", SAME)),
  heads=_HEADS,
  prefix="deit.",
  computed=rules(HEADED, OF_CLASS_TOKEN, PLAIN, kinds=("deit",), **SIZES_OF_VIT),
  sizes=sizes,
  fields={"pool": one_of("distilled")},
  position_resizing="bicubic",
  processor="DeiT",
  left_out=r"(deit\.)?(pooler\..*|embeddings\.mask_token)",
  here=_here,
  there=_there,
)
