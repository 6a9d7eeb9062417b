"""Requirements of a model on images and devices."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from vit_jax.config import MAX_SIDE, ConfigError
from vit_jax.models.attention import Attention
from vit_jax.models.family import Network
from vit_jax.process import variables

AMPERE = 8  # compute capability 8.x
HOPPER = 9  # compute capability 9.0
USE_XLA = "use --config.model.attention=xla"
NOT_IN_FLOAT32 = (
  "config.model.attention='cudnn' computes in bfloat16 only; set "
  f"--config.model.compute_dtype=bfloat16, or {USE_XLA}."
)
# Seen on an H200 with JAX 0.11.2: the first step ends in "IndexError: raw_hash_map<>::at".
NOT_WITH_SAME_BITS = (
  "config.model.attention='cudnn' fails with XLA_FLAGS that ask GPUs for the same bits each time "
  f"(--xla_gpu_deterministic_ops, --xla_gpu_exclude_nondeterministic_ops); {USE_XLA}, or leave the "
  "flag out."
)


def check_tiles(module: Network, side: int, whose: str):
  """Checks that the module's patches tile the images; `whose` names the model in the message.

  Raises:
    ConfigError: they do not.
  """
  if side and not module.tiles(side):
    below = next((s for s in range(side, 0, -1) if module.tiles(s)), None)
    above = next((s for s in range(side, MAX_SIDE + 1) if module.tiles(s)), None)
    raise ConfigError(
      f"config.data.image_size={side} is not divisible into the patches of {whose}; "
      f"nearest: {', '.join(str(s) for s in (below, above) if s) or 'none'}."
    )


def largest_side(module: Network, most: int, whose: str) -> int:
  """The largest side up to `most` of square images that the module is meant for, pixels.

  Raises:
    ConfigError: there is none; `whose` names the model in the message.
  """
  side = module.largest_side(most)
  if not side:
    raise ConfigError(
      f"Images of {most} pixels are smaller than a patch of {whose}; the smallest size is "
      f"{module.stride()}."
    )
  return side


def check_attention(module: Network, side: int, device: jax.Device):
  """Checks that cuDNN can compute the attention of a module, if the module asks for it.

  Args:
    module: with the type in which it computes.
    side: of the images, pixels.
    device: one of those that compute.

  Raises:
    ConfigError: cuDNN is asked for, and cannot.
  """
  if getattr(module, "attention", "xla") != "cudnn":
    return
  if reason := why_not_cudnn(module, side, device):
    raise ConfigError(reason)


def attention_on(module: Network, side: int, device: jax.Device) -> str:
  """The library that computes the attention of a module: "cudnn" where it can, else "xla".

  Args:
    module: with the type in which it computes.
    side: of the images, pixels.
    device: one of those that compute.
  """
  if hasattr(module, "attention") and not why_not_cudnn(module, side, device):
    return "cudnn"
  return "xla"


def why_not_cudnn(module: Network, side: int, device: jax.Device) -> str:
  """Why cuDNN cannot compute the attention of this model on this device; "" if it can.

  The conditions are those of `jax.nn.dot_product_attention`, except the one on the number of
  tokens, which the models make even.
  """
  if device.platform != "gpu":
    return (
      f"config.model.attention='cudnn' needs a GPU, and this is a {device.platform}; {USE_XLA}."
    )
  generation = device.compute_capability.partition(".")[0]
  if not generation.isdecimal() or int(generation) < AMPERE:
    return (
      "config.model.attention='cudnn' needs an NVIDIA GPU of compute capability "
      f"{AMPERE}.0 or higher, and this one has {device.compute_capability}; {USE_XLA}."
    )
  if jnp.dtype(module.dtype) == jnp.float32:
    return NOT_IN_FLOAT32
  if variables.same_bits_on_gpus():
    return NOT_WITH_SAME_BITS
  most = 256 if int(generation) >= HOPPER else 128
  for channels in sorted(head_channels(module, side)):
    if channels > most or channels % 8:
      return (
        "config.model.attention='cudnn' needs heads with a multiple of 8 channels, on this GPU at "
        f"most {most}, and a head of this model has {channels}; {USE_XLA}, or another number of "
        "heads."
      )
  return ""


def check_type(attention: str, compute_dtype: str):
  """Checks that the chosen attention computes in this type.

  Raises:
    ConfigError: it does not.
  """
  if attention == "cudnn" and compute_dtype == "float32":
    raise ConfigError(NOT_IN_FLOAT32)


def head_channels(module: Network, side: int) -> set[int]:
  """The channels of a head in every attention of a module; computes nothing."""
  channels = set()

  def noted(function, args, kwargs, context):
    inner = context.module
    if isinstance(inner, Attention) and context.method_name == "__call__":
      channels.add(args[0].shape[2] // inner.heads)
    return function(*args, **kwargs)

  with nn.intercept_methods(noted):
    module.clone(attention="xla").parameter_shapes(side)
  return channels
