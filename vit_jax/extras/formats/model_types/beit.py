"""BEiT of Transformers (Bao et al., 2022): biases of attention by the offset of two patches.

The head sees the normalised mean of the patches, or the class token. Heads that predict visual
tokens, and the mask token, are left out.
"""

from vit_jax.extras.formats.model_type import ModelType, rules
from vit_jax.extras.formats.model_types.blocks import BLOCK, OF_VIT, SIZES_OF_VIT, sizes
from vit_jax.models.relative_bias import TABLE
from vit_jax.weights.card import one_of
from vit_jax.weights.translation import SAME, Table, norm

_BIAS = "relative_position_bias.relative_position_bias_table"
_SHARED = f"Transformer/relative_bias/{TABLE}"
NAMES = OF_VIT + Table(
  *norm("pooled_norm", "pooler.layernorm"),
  (f"{BLOCK}/LayerScale_1/scale", "encoder.layer.{0}.lambda_1", SAME),
  (f"{BLOCK}/LayerScale_3/scale", "encoder.layer.{0}.lambda_2", SAME),
  (f"{BLOCK}/relative_bias/{TABLE}", f"encoder.layer.{{0}}.attention.attention.{_BIAS}", SAME),
  (_SHARED, f"encoder.{_BIAS}", SAME),
)
PLAIN = "BeitModel"
HEADED = "BeitForImageClassification"
MASKED = "BeitForMaskedImageModeling"
_FLAG = one_of(True, False)


def _sizes(module) -> dict:
  if (module.pool == "gap_beside_token") != (module.final_norm == "pooled"):
    raise ValueError(f"final_norm={module.final_norm!r} with pool={module.pool!r}")
  relative = module.positions == "relative_table"
  shared = module.position_place == "every_layer_shared"
  return sizes(module) | {
    "use_absolute_position_embeddings": module.positions == "1d",
    "use_relative_position_bias": relative and not shared,
    "use_shared_relative_position_bias": relative and shared,
  }


def _here(flat: dict, settings: dict) -> dict:
  """The arrays, after checks of what config.json says of them.

  Raises:
    ValueError: it says otherwise.
  """
  pools = settings["use_mean_pooling"] and settings["architectures"] != [MASKED]
  stated = {"pooled_norm/scale": pools}
  stated["Transformer/encoderblock_0/LayerScale_1/scale"] = settings["layer_scale_init_value"] > 0
  for name, expected in stated.items():
    if (name in flat) != expected:
      raise ValueError(f"its config.json and its arrays contradict each other about {name}")
  return flat


def _known(settings: dict) -> dict:
  if settings["use_mean_pooling"] and settings["architectures"] != [MASKED]:
    return {"pool": "gap_beside_token"}
  return {"pool": "class_token"}


def _written_with(module) -> dict:
  return {
    "use_mean_pooling": module.final_norm == "pooled",
    "layer_scale_init_value": 0.1 * module.layer_scale,
  }


BEIT = ModelType(
  plain=PLAIN,
  headed=HEADED,
  names=NAMES,
  prefix="beit.",
  computed=rules(
    HEADED,
    PLAIN,
    MASKED,
    kinds=("beit",),
    **{key: x for key, x in SIZES_OF_VIT.items() if key != "qkv_bias"},
    use_mean_pooling=(_FLAG, True),
    layer_scale_init_value=0.1,
    use_absolute_position_embeddings=False,
    use_relative_position_bias=False,
    use_shared_relative_position_bias=False,
  ),
  sizes=_sizes,
  fields={
    "pool": one_of("class_token", "gap_beside_token"),
    "final_norm": one_of("tokens", "pooled"),
    "positions": one_of("1d", "relative_table", "none"),
    "position_place": one_of("stem", "every_layer_shared"),
    "layer_scale": _FLAG,
    "qkv_bias": one_of("no_key"),
  },
  known=_known,
  position_resizing="bicubic",
  processor="Beit",
  left_out=r"(beit\.)?embeddings\.mask_token|lm_head\..*|.*relative_position_index",
  here=_here,
  written_with=_written_with,
)
