"""DINOv2 of Transformers, with or without registers.

The models are ViTs with LayerScale (Oquab et al., 2023; Darcet et al., 2023). Their registers have
no position embeddings, which are zeros here; writing adds those of other models to the registers,
which is the same sum. The mask token, which only training needs, is left
out. The library's classifier reads the class token and the mean of the patches: it is read if its
weights for the mean are zeros, and written with such zeros.
"""

import dataclasses

import numpy as np

from vit_jax.extras.formats.huggingface_images import IMAGENET, Prepared
from vit_jax.extras.formats.model_type import ModelType, rules
from vit_jax.extras.formats.model_types.blocks import MLP, OF_BERT, block
from vit_jax.weights import position_count
from vit_jax.weights.card import one_of, whole
from vit_jax.weights.published import POSITIONS
from vit_jax.weights.translation import CONVOLUTION, DENSE, SAME, Table, layer, norm

_REGISTERS = "register_tokens"
_KERNEL = "head/kernel"
NAMES = Table(
  ("cls", "embeddings.cls_token", SAME),
  (POSITIONS, "embeddings.position_embeddings", SAME),
  *layer("embedding", "embeddings.patch_embeddings.projection", CONVOLUTION),
  *block(
    "encoder.layer.{0}",
    norms=("norm1", "norm2"),
    attention=OF_BERT,
    mlp=("mlp.fc1", "mlp.fc2"),
    scales=("layer_scale1.lambda1", "layer_scale2.lambda1"),
  ),
  *layer(f"{MLP}/Gate_0", "encoder.layer.{0}.mlp.weights_in", DENSE),
  *layer(f"{MLP}/Gate_1", "encoder.layer.{0}.mlp.weights_in", DENSE),
  *layer(f"{MLP}/Gate_2", "encoder.layer.{0}.mlp.weights_out", DENSE),
  *norm("Transformer/encoder_norm", "layernorm"),
)
# Our layers of a gated MLP (SwiGLU), and what the table calls them, because the library's names of
# the layers differ from those of the other MLP.
_GATED = {"Dense_gate": "Gate_0", "Dense_0": "Gate_1", "Dense_1": "Gate_2"}
_SWIGLU = "silu"  # its activation
_MOST = 64  # largest mlp_ratio


def _renamed(flat: dict, names: dict[str, str]) -> dict:
  """The arrays with the layers of their MLPs renamed."""
  renamed = {}
  for name, array in flat.items():
    *path, layer_name, last = ["", *name.split("/")]
    if path[-1:] == ["MlpBlock_3"]:
      name = "/".join([*path[1:], names.get(layer_name, layer_name), last])
    renamed[name] = array
  return renamed


def _ratio(module) -> int:
  """The mlp_ratio of a module.

  Raises:
    ValueError: the library has no MLPs of that size.
  """
  for ratio in range(1, _MOST + 1):
    hidden = module.width * ratio
    if module.mlp == "gated":  # two thirds, and a multiple of 8
      hidden = (int(hidden * 2 / 3) + 7) // 8 * 8
    if hidden == module.mlp_dim:
      return ratio
  raise ValueError(f"MLPs of {module.mlp_dim} channels in a model of width {module.width}")


def _sizes(module) -> dict:
  gated = module.mlp == "gated"
  if gated and module.activation != _SWIGLU:
    raise ValueError(f"a gated MLP with {module.activation}")
  return {
    "hidden_size": module.width,
    "num_hidden_layers": module.depth,
    "num_attention_heads": module.heads,
    "mlp_ratio": _ratio(module),
    "patch_size": module.patch,
    "use_swiglu_ffn": gated,
  }


def _known(settings: dict) -> dict:
  if settings["use_swiglu_ffn"]:
    return {"activation": _SWIGLU}
  return {}


def _usual(side: int) -> Prepared:
  """How the processors of the published models prepare images."""
  return Prepared(*IMAGENET, side, round(side * 256 / 224), False, "pillow_bicubic")


def _here(flat: dict, settings: dict) -> dict:
  """The arrays with a head on the class token alone.

  Raises:
    ValueError: the head also reads the mean of the patches.
  """
  if any("/Gate_0/" in name for name in flat):
    flat = _renamed(flat, {there: ours for ours, there in _GATED.items()})
  if _KERNEL not in flat:
    return flat
  of_class, of_patches = np.split(flat[_KERNEL], 2)
  if of_patches.any():
    raise ValueError(
      "its classifier reads the class token and the mean of the patches, and heads here read one of"
      " them"
    )
  return flat | {_KERNEL: of_class}


def _there(flat: dict) -> dict:
  """The arrays with the library's head, and its names of the layers of a gated MLP."""
  if any("/Dense_gate/" in name for name in flat):
    flat = _renamed(flat, _GATED)
  if _KERNEL not in flat:
    return flat
  kernel = np.asarray(flat[_KERNEL])
  return flat | {_KERNEL: np.concatenate([kernel, np.zeros_like(kernel)])}


def _here_with_registers(flat: dict, settings: dict) -> dict:
  """The same, with position embeddings of zeros for the registers."""
  count = flat[_REGISTERS].shape[1]
  return _here(flat, settings) | {POSITIONS: position_count.with_registers(flat[POSITIONS], count)}


def _there_with_registers(flat: dict) -> dict:
  """The arrays with the registers' position embeddings added to the registers."""
  table = np.asarray(flat[POSITIONS])
  last = 1 + flat[_REGISTERS].shape[1]
  return _there(flat) | {
    _REGISTERS: flat[_REGISTERS] + table[:, 1:last],
    POSITIONS: np.delete(table, range(1, last), axis=1),
  }


_SIZES = dict(
  layer_norm_eps=1e-6,
  hidden_size=768,
  num_hidden_layers=12,
  mlp_ratio=4,
  patch_size=14,
  qkv_bias=(one_of(True), True),
  apply_layernorm=(one_of(True), True),
  use_swiglu_ffn=(one_of(True, False), False),
)
PLAIN = "Dinov2Model"
HEADED = "Dinov2ForImageClassification"
DINOV2 = ModelType(
  plain=PLAIN,
  headed=HEADED,
  names=NAMES,
  prefix="dinov2.",
  computed=rules(HEADED, PLAIN, kinds=("dinov2",), **_SIZES),
  sizes=_sizes,
  fields={"layer_scale": one_of(True), "mlp": one_of("plain", "gated")},
  known=_known,
  position_resizing="bicubic",
  resizes=True,
  processor="Bit",
  usual=_usual,
  left_out=r"(dinov2\.)?embeddings\.mask_token",
  here=_here,
  there=_there,
)
WITH_REGISTERS = "Dinov2WithRegistersModel"
HEADED_WITH_REGISTERS = "Dinov2WithRegistersForImageClassification"
DINOV2_WITH_REGISTERS = dataclasses.replace(
  DINOV2,
  plain=WITH_REGISTERS,
  headed=HEADED_WITH_REGISTERS,
  names=NAMES + Table((_REGISTERS, "embeddings.register_tokens", SAME)),
  prefix="dinov2_with_registers.",
  computed=rules(
    HEADED_WITH_REGISTERS,
    WITH_REGISTERS,
    kinds=("dinov2_with_registers",),
    num_register_tokens=4,
    **_SIZES | dict(patch_size=16),
  ),
  sizes=lambda module: _sizes(module) | {"num_register_tokens": module.registers},
  fields=DINOV2.fields | {"registers": whole(1, 1000)},
  position_resizing="bicubic_antialiased",
  left_out=r"(dinov2_with_registers\.)?embeddings\.mask_token",
  here=_here_with_registers,
  there=_there_with_registers,
)
