"""Makes uint8 RGB squares from encoded images on the host: decodes, crops, resizes, flips.

The format of a file is found by its content, never by its name. Everything becomes 8-bit RGB: grey
and palette images are expanded, transparency becomes white, 16 bits are scaled to 8, CMYK is
converted, and the Exif orientation is applied.

In all functions `image` is an encoded file, or uint8 pixels (H, W) or (H, W, channels); an image of
more than `max_pixels` pixels is refused; `resampling` is as in `crops.resized`; and results are
uint8, RGB unless `channels` is another number (`as_channels`). `BadImage` is raised as by `decode`.
"""

import io
import math

import cv2
import numpy as np
from PIL import Image

from vit_jax.data import crops, jpeg, orientation, pillow
from vit_jax.data.crops import (
  PUBLISHED,
  Box,
  Cut,
  central,
  filter_of,
  margin,
  resized,
  smaller_side_to,
)
from vit_jax.data.jpeg import BadImage as BadImage
from vit_jax.data.pillow import check_size

RGB = 3  # channels
RGBA = 4
_NPY = b"\x93NUMPY"
_MAX_RESIZED = 2**26  # pixels; if a very thin image would have more, only its middle is resized

# Our own threads decode one image each; OpenCV's threads would compete with them for the cores.
cv2.setNumThreads(0)


def decode(data: bytes, *, max_pixels: int) -> np.ndarray:
  """Decodes a whole image exactly: JPEG, PNG, WebP, GIF, AVIF, TIFF, BMP or PPM.

  Returns:
    (H, W, 3) uint8, RGB, upright.

  Raises:
    BadImage: the file has another format, is broken or truncated, or has more than `max_pixels`
      pixels; or the value of white is unknown.
  """
  if _fast_size(data, max_pixels=max_pixels):
    return orientation.upright(jpeg.decode(data), _orientation(data))
  return pillow.decode(data, max_pixels=max_pixels)


def train_image(
  image: bytes | np.ndarray,
  *,
  rng: np.random.Generator,
  size: int,
  area: tuple[float, float],
  aspect: tuple[float, float],
  flip: bool,
  max_pixels: int,
  draw: crops.Draw = crops.inception,
  resampling: str = PUBLISHED,
  channels: int = RGB,
) -> Cut:
  """A random crop of the image, resized to a square and flipped left-right with probability 0.5.

  Args:
    rng: draws the crop and the flip.
    size: side of the result in pixels.
    area: smallest and largest fraction of the image's area in the crop.
    aspect: smallest and largest width / height of the crop.
    flip: whether to flip at all.
    draw: the rule that draws the crop, one of `crops.RULES`.
  """
  fast_size = None
  if isinstance(image, bytes) and channels == RGB:
    fast_size = _fast_size(image, max_pixels=max_pixels)
  if fast_size and _orientation(image) == 1:  # decode only what the crop needs
    height, width = fast_size
    box = draw(rng, height=height, width=width, area=area, aspect=aspect)
    pixels, box_in_pixels = _decode_for(image, box=box, height=height, width=width, size=size)
  else:
    pixels = as_channels(image, channels, max_pixels=max_pixels)
    height, width = pixels.shape[:2]
    box = draw(rng, height=height, width=width, area=area, aspect=aspect)
    box_in_pixels = box
  out = resized(_cut(pixels, box_in_pixels), height=size, width=size, resampling=resampling)
  flipped = flip and _heads(rng)
  return Cut(_turned(out, flipped), (height, width), (height, width), box, flipped)


def train_square(
  image: bytes | np.ndarray,
  *,
  rng: np.random.Generator,
  size: int,
  resize: int,
  flip: bool,
  max_pixels: int,
  resampling: str = PUBLISHED,
  channels: int = RGB,
) -> Cut:
  """Resizes the image to a square, cuts out a random smaller square, flips with probability 0.5.

  Args: as `train_image`, but
    resize: side in pixels of the square to which the whole image is first resized, whatever its
      aspect; at least `size`.

  Source: Kolesnikov et al., "Big Transfer (BiT)", 2020, Section 3.3.
  """
  whole = as_channels(image, channels, max_pixels=max_pixels)
  pixels = resized(whole, height=resize, width=resize, resampling=resampling)
  top, left = (int((resize - size + 1) * rng.random()) for _ in range(2))
  box = Box(top, left, size, size)
  out = np.ascontiguousarray(_cut(pixels, box))
  flipped = flip and _heads(rng)
  return Cut(_turned(out, flipped), whole.shape[:2], (resize, resize), box, flipped)


def train_padded(
  image: bytes | np.ndarray,
  *,
  rng: np.random.Generator,
  size: int,
  pad: int,
  flip: bool,
  max_pixels: int,
  resampling: str = PUBLISHED,
  channels: int = RGB,
) -> Cut:
  """The simple random crop: a random square of the image whose smaller side is resized to `size`.

  Args: as `train_image`, but
    pad: pixels by which the resized image is mirrored at every edge before it is cropped; less than
      `size`.

  Source: Touvron et al., "DeiT III: Revenge of the ViT", 2022, Section 3; its code pads 4 pixels.
  """
  whole = as_channels(image, channels, max_pixels=max_pixels)
  pixels = _smaller_side(whole, side=size, size=size, resampling=resampling)
  height, width = smaller_side_to(size, *whole.shape[:2], resampling=resampling)
  # `pixels` may be only the middle of the resized image: its place there.
  middle_top = (height - pixels.shape[0]) // 2
  middle_left = (width - pixels.shape[1]) // 2
  rows, columns = (side + 2 * pad for side in pixels.shape[:2])
  pixels = cv2.copyMakeBorder(pixels, pad, pad, pad, pad, cv2.BORDER_REFLECT_101)
  pixels = pixels.reshape(rows, columns, channels)  # OpenCV drops an axis of one channel
  top, left = (int((side - size + 1) * rng.random()) for side in pixels.shape[:2])
  out = np.ascontiguousarray(_cut(pixels, Box(top, left, size, size)))
  box = Box(middle_top + top - pad, middle_left + left - pad, size, size)
  flipped = flip and _heads(rng)
  return Cut(_turned(out, flipped), whole.shape[:2], (height, width), box, flipped)


def evaluate_image(image: bytes | np.ndarray, **how) -> np.ndarray:
  """The pixels, (S, S, channels), of `evaluation_cut`, with its arguments."""
  return evaluation_cut(image, **how).pixels


def evaluation_cut(
  image: bytes | np.ndarray,
  *,
  size: int,
  resize: int,
  max_pixels: int,
  squeeze: bool = False,
  resampling: str = PUBLISHED,
  channels: int = RGB,
) -> Cut:
  """Prepares an image for evaluation, with exact decoding and no randomness.

  Args:
    size: side of the result in pixels.
    resize: 0: the whole image is resized to the square, whatever its aspect. Otherwise the smaller
      side is resized to `resize` pixels, and the central square of `size` is cut out.
    squeeze: whether both sides, not only the smaller one, are resized to `resize` pixels.

  Raises:
    ValueError: `resize` is neither 0 nor at least `size`.
  """
  if 0 != resize < size:
    raise ValueError(
      f"resize={resize} is smaller than the central crop size={size}; make it 0 or at least {size}."
    )
  whole = as_channels(image, channels, max_pixels=max_pixels)
  if resize == 0 or squeeze:
    grid = (resize or size, resize or size)
    pixels = resized(whole, height=grid[0], width=grid[1], resampling=resampling)
  else:
    grid = smaller_side_to(resize, *whole.shape[:2], resampling=resampling)
    pixels = _smaller_side(whole, side=resize, size=size, resampling=resampling)
  top, left = (margin(side, size, resampling=resampling) for side in grid)
  out = _centre(pixels, size, resampling)
  return Cut(out, whole.shape[:2], grid, Box(top, left, size, size))


def shrink(image: bytes | np.ndarray, *, side: int, max_pixels: int) -> np.ndarray:
  """Reduces the smaller side of an image to `side` pixels; smaller images stay as they are.

  Args:
    side: pixels of the smaller side.

  Returns:
    The pixels; each is the mean of the pixels that it replaces.
  """
  pixels = as_rgb(image, max_pixels=max_pixels)
  height, width = pixels.shape[:2]
  scale = side / min(height, width)
  if scale >= 1:
    return pixels
  new = (round(width * scale), round(height * scale))
  if (height, width) == (2 * new[1], 2 * new[0]):  # the same mean; INTER_AREA rounds its halves up
    return resized(pixels, height=new[1], width=new[0], resampling=PUBLISHED)
  return cv2.resize(pixels, new, interpolation=cv2.INTER_AREA)


def as_rgb(image: bytes | np.ndarray, *, max_pixels: int) -> np.ndarray:
  """As `as_channels`, for RGB."""
  return as_channels(image, RGB, max_pixels=max_pixels)


def as_channels(image: bytes | np.ndarray, channels: int, *, max_pixels: int) -> np.ndarray:
  """Decodes a file, or checks pixels: (H, W, channels) uint8.

  Grey, RGB and RGBA become one another: grey is the luma of ITU-R BT.601, as in Pillow, and a file
  without transparency is opaque. Other numbers of channels are read from arrays alone, in memory or
  in files of NumPy (.npy).

  Raises:
    BadImage: also if the pixels have another type or shape.
  """
  if isinstance(image, bytes) and image.startswith(_NPY):
    image = _array_in(image)
  if isinstance(image, bytes):
    return _decoded(image, channels, max_pixels=max_pixels)
  there = image.shape[2] if image.ndim == 3 else 1
  known = there == channels or (there in (1, RGB) and channels in (1, RGB, RGBA))
  if image.dtype != np.uint8 or image.ndim not in (2, 3) or not known:
    raise BadImage(
      f"Pixels are {image.dtype} {image.shape}; they must be uint8 (H, W), (H, W, 1) or (H, W, "
      f"{channels}), with the model's channels (config.model.channels)."
    )
  check_size(*image.shape[:2], max_pixels=max_pixels)
  if there == channels and image.ndim == 3:
    return image
  if there == channels:
    return image[..., None]
  if there == 1:
    image = cv2.cvtColor(image, cv2.COLOR_GRAY2RGB)
  return _of_rgb(image, channels)


def size_of(image: bytes | np.ndarray, *, max_pixels: int) -> tuple[int, int]:
  """Rows and columns of an upright image of any channels."""
  if isinstance(image, bytes) and image.startswith(_NPY):
    image = _array_in(image)
  if isinstance(image, bytes):
    image = as_rgb(image, max_pixels=max_pixels)
  return image.shape[:2]


def _decoded(data: bytes, channels: int, *, max_pixels: int) -> np.ndarray:
  """The pixels of a file that is no array."""
  if channels == RGBA:
    return pillow.decode(data, max_pixels=max_pixels, transparency=True)
  if channels not in (1, RGB):
    raise BadImage(
      f"It is no .npy file, and images of {channels} channels are read from these alone; save the "
      f"pixels with numpy.save, as uint8 (H, W, {channels})."
    )
  return _of_rgb(decode(data, max_pixels=max_pixels), channels)


def _of_rgb(pixels: np.ndarray, channels: int) -> np.ndarray:
  """RGB as grey (1), as RGB (3) or, opaque, as RGBA (4)."""
  if channels == 1:
    return np.asarray(Image.fromarray(pixels).convert("L"))[..., None]
  if channels == RGBA:
    return np.pad(pixels, ((0, 0), (0, 0), (0, 1)), constant_values=255)
  return pixels


def _array_in(data: bytes) -> np.ndarray:
  """The array in a .npy file, a view of its bytes.

  Raises:
    BadImage: it is damaged, or does not hold bytes in the usual order.
  """
  stream = io.BytesIO(data)
  try:
    read = _HEADERS[np.lib.format.read_magic(stream)]
    shape, fortran, dtype = read(stream)
    if dtype != np.uint8 or fortran:
      raise BadImage(f"It is a .npy file of {dtype}; save uint8 pixels (H, W, channels), C order.")
    return np.frombuffer(data, np.uint8, offset=stream.tell()).reshape(shape)
  except (ValueError, KeyError) as error:
    raise BadImage(f"It is a .npy file that cannot be read: {error}") from error


_HEADERS = {
  (1, 0): np.lib.format.read_array_header_1_0,
  (2, 0): np.lib.format.read_array_header_2_0,
}


def _fast_size(data: bytes, *, max_pixels: int) -> tuple[int, int] | None:
  """Stored (height, width) of a JPEG that the fast decoder can read; None for all other files."""
  if not jpeg.is_jpeg(data):
    return None
  size = jpeg.read_size(data)
  if size:
    check_size(*size, max_pixels=max_pixels)
  return size


def _orientation(data: bytes) -> int:
  """The orientation of a JPEG."""
  return orientation.of(jpeg.exif(data), jpeg.xmp(data))


def _decode_for(
  data: bytes, *, box: Box, height: int, width: int, size: int
) -> tuple[np.ndarray, Box]:
  """Decodes only the rows that a crop needs, at the lowest resolution that it needs.

  Returns:
    The pixels, and the box of the crop in them.
  """
  side = min(box.height, box.width)
  factor = max(factor for factor in (1, 2, 4, 8) if factor == 1 or factor * size <= side)
  end = box.top + box.height
  pixels = jpeg.decode_rows(data, height=height, width=width, end=end, factor=factor)
  top = round(box.top / factor)
  left = round(box.left / factor)
  bottom = round(end / factor)
  right = round((box.left + box.width) / factor)
  return pixels, Box(top, left, bottom - top, right - left)


def _cut(pixels: np.ndarray, box: Box) -> np.ndarray:
  return pixels[box.top : box.top + box.height, box.left : box.left + box.width]


def _heads(rng: np.random.Generator) -> bool:
  """True with probability 0.5."""
  return rng.random() < 0.5


def _turned(pixels: np.ndarray, flipped: bool) -> np.ndarray:
  """Flips the pixels left to right if `flipped`."""
  if not flipped:
    return pixels
  return cv2.flip(pixels, 1).reshape(pixels.shape)  # OpenCV drops an axis of one channel


def _smaller_side(pixels: np.ndarray, *, side: int, size: int, resampling: str) -> np.ndarray:
  """Resizes the smaller side to `side` pixels; a very thin image is first cut to its middle."""
  height, width = smaller_side_to(side, *pixels.shape[:2], resampling=resampling)
  if height * width <= _MAX_RESIZED:
    return resized(pixels, height=height, width=width, resampling=resampling)
  if filter_of(resampling):
    return central(pixels, height=height, width=width, size=size, resampling=resampling)
  scale = side / min(pixels.shape[:2])
  pixels = _middle(pixels, math.ceil(size / scale) + 2)  # interpolation needs a pixel at each end
  height, width = (round(length * scale) for length in pixels.shape[:2])
  return resized(pixels, height=height, width=width, resampling=resampling)


def _middle(pixels: np.ndarray, most: int) -> np.ndarray:
  """The middle of an image, with sides of at most `most` pixels, or one more to keep the centre."""
  sides = [min(side, most + (side - most) % 2) for side in pixels.shape[:2]]
  top, left = ((old - new) // 2 for old, new in zip(pixels.shape, sides, strict=False))
  return _cut(pixels, Box(top, left, *sides))


def _centre(pixels: np.ndarray, size: int, resampling: str) -> np.ndarray:
  top, left = (margin(side, size, resampling=resampling) for side in pixels.shape[:2])
  return np.ascontiguousarray(_cut(pixels, Box(top, left, size, size)))
