"""How evaluation resizes images before it cuts out their centre."""

from vit_jax.config import ConfigError, Data

# Few-shot evaluation cuts 224 pixels out of a square of 256.
SQUARE = 256 / 224


def in_words(data: Data, resize: int, *, squeeze: bool) -> str:
  """Says how an image becomes a square of `data.image_size` pixels.

  Args:
    data: the settings.
    resize, squeeze: as of `images.evaluate_image`.
  """
  side = data.image_size
  square = f"{resize or side} x {resize or side} px"
  first = f"smaller side to {resize} px" if resize and not squeeze else square
  centre = f", centre of {side} px" if resize else ""
  how = f", {data.resampling}" if data.resampled() != Data().resampled() else ""
  return f"{first}{centre}{how}"


def square(side: int) -> int:
  """Side of the square to which images are resized for evaluations of features."""
  return round(side * SQUARE)


def check(data: Data):
  """Checks that evaluation resizes images to at least the size that it cuts out.

  Raises:
    ConfigError: the resized image is smaller.
  """
  if 0 != data.evaluate_resize < data.image_size:
    raise ConfigError(
      f"config.data.evaluate_resize={data.evaluate_resize} is smaller than "
      f"config.data.image_size={data.image_size}, which is cut out of it; make it 0 or at least "
      f"{data.image_size}."
    )
