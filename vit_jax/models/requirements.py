"""Requirements of a model on images and devices."""

from vit_jax.config import MOST_SIDE, ConfigError
from vit_jax.models.resnet import ResNet


def check_tiles(module, side: int, whose: str):
  """Checks that the module's patches tile the images; `whose` names the model in the message.

  Raises:
    ConfigError: they do not.
  """
  if side and not tiles(module, side):
    below = next((s for s in range(side, 0, -1) if tiles(module, s)), None)
    above = next((s for s in range(side, MOST_SIDE + 1) if tiles(module, s)), None)
    raise ConfigError(
      f"config.data.image_size={side} is not divisible into the patches of {whose}; "
      f"nearest: {', '.join(str(s) for s in (below, above) if s) or 'none'}."
    )


def tiles(module, side: int) -> bool:
  """Whether the module's patches tile a square image of this side; a ResNet has no patches."""
  if isinstance(module, ResNet):
    return True
  try:
    module.grid(side, side)
  except ValueError:
    return False
  return True


def check_attention(attention: str, platform: str):
  """Checks that the chosen attention runs on this platform.

  Raises:
    ConfigError: it does not.
  """
  if attention == "cudnn" and platform != "gpu":
    raise ConfigError(
      f"config.model.attention='cudnn' needs a GPU, and this is a {platform}; use "
      "--config.model.attention=xla."
    )
