"""Reads DINOv2, with or without registers, from a Hugging Face folder.

The models are Dinov2Model and Dinov2WithRegistersModel (Oquab et al., 2023; Darcet et al., 2023): a
ViT with LayerScale and exact GELU, without a head. The mask token, which only training needs, is
left out.
"""

import logging
import pathlib

from vit_jax.config import Model
from vit_jax.extras.formats import huggingface_images
from vit_jax.extras.formats.huggingface import (
  ACTIVATIONS,
  CONFIG,
  EPSILONS,
  WEIGHTS,
  activation_of,
)
from vit_jax.models.recognition import module_of
from vit_jax.storage.tree import nest
from vit_jax.weights import card, pixels, position_count, safetensors
from vit_jax.weights.card import RULES, Card, Rule, inferred, one_of, whole
from vit_jax.weights.format import WeightFormat
from vit_jax.weights.published import POSITIONS
from vit_jax.weights.translation import (
  CONVOLUTION,
  DENSE,
  FROM_HEADS,
  SAME,
  Table,
  layer,
  norm,
  to_heads,
)

KINDS = ("dinov2", "dinov2_with_registers")
_BLOCK = "Transformer/encoderblock_{0}"
_THEIR_BLOCK = "encoder.layer.{0}"
_ATTENTION = f"{_BLOCK}/MultiHeadDotProductAttention_1"
NAMES = Table(
  ("cls", "embeddings.cls_token", SAME),
  ("register_tokens", "embeddings.register_tokens", SAME),
  (POSITIONS, "embeddings.position_embeddings", SAME),
  *layer("embedding", "embeddings.patch_embeddings.projection", CONVOLUTION),
  *norm(f"{_BLOCK}/LayerNorm_0", f"{_THEIR_BLOCK}.norm1"),
  *to_heads(f"{_ATTENTION}/query", f"{_THEIR_BLOCK}.attention.attention.query"),
  *to_heads(f"{_ATTENTION}/key", f"{_THEIR_BLOCK}.attention.attention.key"),
  *to_heads(f"{_ATTENTION}/value", f"{_THEIR_BLOCK}.attention.attention.value"),
  *layer(f"{_ATTENTION}/out", f"{_THEIR_BLOCK}.attention.output.dense", FROM_HEADS),
  (f"{_BLOCK}/LayerScale_1/scale", f"{_THEIR_BLOCK}.layer_scale1.lambda1", SAME),
  *norm(f"{_BLOCK}/LayerNorm_2", f"{_THEIR_BLOCK}.norm2"),
  *layer(f"{_BLOCK}/MlpBlock_3/Dense_0", f"{_THEIR_BLOCK}.mlp.fc1", DENSE),
  *layer(f"{_BLOCK}/MlpBlock_3/Dense_1", f"{_THEIR_BLOCK}.mlp.fc2", DENSE),
  (f"{_BLOCK}/LayerScale_3/scale", f"{_THEIR_BLOCK}.layer_scale2.lambda1", SAME),
  *norm("Transformer/encoder_norm", "layernorm"),
)
MASKED = "embeddings.mask_token"
COMPUTED = {
  "architectures": (one_of(["Dinov2Model"], ["Dinov2WithRegistersModel"]), None),
  "model_type": (one_of(*KINDS), KINDS[0]),
  "hidden_act": (one_of(*ACTIVATIONS["gelu"], *ACTIVATIONS["gelu_tanh"]), "gelu"),
  "layer_norm_eps": (EPSILONS, 1e-6),
  "num_attention_heads": (whole(1, 10**4), 12),
  "num_channels": (one_of(3), 3),
  "image_size": (RULES["image_size"], 224),
  "qkv_bias": (one_of(True), True),
  "apply_layernorm": (one_of(True), True),
  "use_swiglu_ffn": (Rule(lambda x: x is False, "False: no model here has SwiGLU"), False),
  "quantization_config": (one_of(None), None),
}
# How Transformers resizes position embeddings; without registers, it does not antialias.
POSITION_RESIZING = dict(zip(KINDS, ("bicubic", "bicubic_antialiased"), strict=True))
_log = logging.getLogger(__name__)


def _recognises(path: pathlib.Path) -> bool:
  config = path / CONFIG
  if not config.is_file():
    return False
  settings = card.read_json(config)
  return isinstance(settings, dict) and settings.get("model_type") in KINDS


def _load(folder: pathlib.Path) -> dict:
  settings = card.read_by_rules(folder / CONFIG, COMPUTED)
  if not (folder / WEIGHTS).is_file():
    raise ValueError(f"it has no {WEIGHTS} (weights in several files are not read)")
  flat = safetensors.load_arrays(folder / WEIGHTS)
  if flat.pop(MASKED, None) is not None:
    _log.warning("Left out, because it is for training without labels only: %s.", MASKED)
  try:
    params = nest(_with_positions(NAMES.ours(flat, settings["num_attention_heads"])))
  except KeyError as error:
    raise ValueError(f"{error} is not part of a {settings['architectures'][0]}") from error
  _check_size(params, settings["image_size"])
  prepared = _prepared(folder, params)
  return pixels.folded(params, prepared.mean, prepared.deviation)


def _with_positions(flat: dict) -> dict:
  """The arrays with position embeddings of zeros for the registers."""
  if "register_tokens" not in flat or POSITIONS not in flat:
    return flat
  registers = flat["register_tokens"].shape[1]
  return flat | {POSITIONS: position_count.with_registers(flat[POSITIONS], registers)}


def _check_size(params: dict, stated: int):
  """Checks that the position embeddings are for square images of the size in config.json.

  Raises:
    ValueError: they are not.
  """
  module = module_of(params)
  rest = stated % module.patch  # pixels at the edge that Transformers' model ignores
  if module.side_of(params) != stated - rest:
    raise ValueError(
      f"image_size is {stated} in {CONFIG}, and {module.side_of(params)} by the position embeddings"
    )


def _prepared(folder: pathlib.Path, params: dict) -> huggingface_images.Prepared:
  """How images are prepared; without a file about it, by the size of the position embeddings.

  The smaller side then becomes 8/7 of that size, as in the published processors.
  """
  side = inferred(params).image_size
  usual = huggingface_images.Prepared(
    *huggingface_images.IMAGENET, side, round(side * 256 / 224), False, "pillow_bicubic"
  )
  return huggingface_images.read_processor(folder, "Bit") or usual


def _card(folder: pathlib.Path, params: dict | None) -> Card | None:
  if not params:
    return None  # nothing records what they were trained on
  settings = card.read_by_rules(folder / CONFIG, COMPUTED)
  prepared = _prepared(folder, params)
  return Card(
    image_size=prepared.size,
    resize=prepared.resize,
    squeeze=prepared.squeeze,
    resampling=prepared.resampling,
    position_resizing=POSITION_RESIZING[settings["model_type"]],
    model=Model(
      activation=activation_of(settings["hidden_act"]), norm_epsilon=settings["layer_norm_eps"]
    ),
  )


DINOV2 = WeightFormat(
  words="a folder of Hugging Face with DINOv2", recognises=_recognises, load=_load, card=_card
)
