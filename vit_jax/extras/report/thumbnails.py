"""Small pictures of images that a run kept."""

import io
from collections.abc import Callable, Mapping

import numpy as np
from PIL import Image

from vit_jax.extras.report.document import Picture
from vit_jax.storage.files import read_bytes
from vit_jax.storage.paths import Path

SIDE = 160  # pixels, of the longer side; larger images are reduced, smaller ones enlarged
MAX_PIXELS = 2**26  # larger images are not decoded
MAX_BYTES = 2**28  # larger files are not read


def thumbnails(
  images: Mapping[int, Path],
  captions: Mapping[int, str],
  alt: Callable[[str], str],
  *,
  side: int = SIDE,
) -> list[Picture]:
  """A picture for each row of `captions`; files that cannot be read are left out.

  Args:
    images: files by row.
    captions: texts by row, in the order in which they are shown.
    alt: (caption) -> the text for readers who do not see the picture.
    side: approximate longer side of the pictures, pixels; up to SIDE, several fit side by side.
  """
  drawn = [(caption, png(images[row], side)) for row, caption in captions.items() if row in images]
  small = side <= SIDE
  return [
    Picture(data, "png", alt(caption), caption, small=small) for caption, data in drawn if data
  ]


def png(path: Path, side: int = SIDE) -> bytes:
  """An image file at about `side` pixels, as PNG; b"" if it cannot be read."""
  try:
    return resized(rgb(path), side)
  except OSError:
    return b""


def rgb(path: Path) -> Image.Image:
  """The image in a PNG file.

  Raises:
    OSError: it cannot be read, is damaged, or has more than MAX_PIXELS pixels.
  """
  try:
    with Image.open(io.BytesIO(read_bytes(path, most=MAX_BYTES)), formats=["PNG"]) as image:
      if image.width * image.height > MAX_PIXELS:
        raise ValueError(f"it has more than {MAX_PIXELS:,} pixels")
      return image.convert("RGB")
  except (ValueError, SyntaxError, Image.DecompressionBombError) as error:  # PNG: SyntaxError
    raise OSError(f"{path} cannot be read: {error}") from error


def resized(image: Image.Image, side: int = SIDE) -> bytes:
  """An image at about `side` pixels, as PNG."""
  stream = io.BytesIO()
  scaled(image, side).save(stream, "PNG", optimize=True)
  return stream.getvalue()


def scaled(image: Image.Image, side: int = SIDE) -> Image.Image:
  """An image at about `side` pixels; small images are enlarged without smoothing."""
  scale = side / max(image.size)
  resampling = Image.Resampling.LANCZOS
  if scale >= 2:
    scale = int(scale)
    resampling = Image.Resampling.NEAREST
  size = [max(round(length * scale), 1) for length in image.size]
  return image.resize(size, resampling)


def jpeg(pixels: np.ndarray) -> bytes:
  """Pixels (H, W, 3) uint8 as JPEG."""
  stream = io.BytesIO()
  Image.fromarray(pixels).save(stream, "JPEG", quality=90)
  return stream.getvalue()
