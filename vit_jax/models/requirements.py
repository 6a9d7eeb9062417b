"""Requirements of a model on images and devices."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from vit_jax.config import MAX_SIDE, ConfigError
from vit_jax.models.attention import Attention
from vit_jax.models.family import Network

HOPPER = 9  # its compute capability is 9.0


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


def check_attention(module: Network, side: int, device: jax.Device, *, training: bool):
  """Checks that the chosen attention can compute this model on this device.

  cuDNN's conditions are those of `jax.nn.dot_product_attention`, which raises an error of its own.

  Args:
    module: in the type in which it computes.
    side: of the images, pixels.
    device: one of those that compute.
    training: whether gradients are computed.

  Raises:
    ConfigError: it cannot.
  """
  if getattr(module, "attention", "xla") != "cudnn":
    return
  if device.platform != "gpu":
    raise ConfigError(
      f"config.model.attention='cudnn' needs a GPU, and this is a {device.platform}; use "
      "--config.model.attention=xla."
    )
  check_type(module.attention, jnp.dtype(module.dtype).name)
  most = most_channels(device)
  for tokens, channels, relative in sorted(attentions(module, side)):
    if channels > most or channels % 8:
      raise ConfigError(
        f"config.model.attention='cudnn' needs heads with a multiple of 8 channels, on this GPU at "
        f"most {most}, and a head of this model has {channels}; use --config.model.attention=xla, "
        "or another number of heads."
      )
    if training and relative and tokens % 2:
      raise ConfigError(
        "config.model.attention='cudnn' trains relative position embeddings only with an even "
        f"number of tokens, and this model attends to {tokens}; use --config.model.attention=xla."
      )


def check_type(attention: str, compute_dtype: str):
  """Checks that the chosen attention computes in this type.

  Raises:
    ConfigError: it does not.
  """
  if attention == "cudnn" and compute_dtype == "float32":
    raise ConfigError(
      "config.model.attention='cudnn' computes in bfloat16 only; set "
      "--config.model.compute_dtype=bfloat16, or --config.model.attention=xla."
    )


def most_channels(device: jax.Device) -> int:
  """The most channels of a head that cuDNN's attention takes on this GPU."""
  major = device.compute_capability.partition(".")[0]
  return 256 if major.isdecimal() and int(major) >= HOPPER else 128


def attentions(module: Network, side: int) -> set[tuple[int, int, bool]]:
  """(tokens, channels of a head, relative positions) of every attention; computes nothing."""
  sizes = set()

  def noted(function, args, kwargs, context):
    inner = context.module
    if isinstance(inner, Attention) and context.method_name == "__call__":
      sizes.add((args[0].shape[1], args[0].shape[2] // inner.heads, inner.relative))
    return function(*args, **kwargs)

  with nn.intercept_methods(noted):
    module.clone(attention="xla").parameter_shapes(side)
  return sizes
