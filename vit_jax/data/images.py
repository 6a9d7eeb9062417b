"""Makes uint8 RGB pixels of one size from encoded images on the host: decodes, crops, flips.

The format of a file is found by its content, never by its name. Everything becomes 8-bit RGB: grey
and palette images are expanded, transparency becomes white, 16 bits are scaled to 8, CMYK is
converted, and the Exif orientation is applied.

In all functions `image` is an encoded file, or uint8 pixels (H, W) or (H, W, channels); sizes are
the side of a square, as of most models, or (height, width); an image of more than `max_pixels`
pixels is refused; `resampling` is as in `crops.resized`; and results are uint8, RGB unless
`channels` is another number (`as_channels`). `BadImage` is raised as by `decode`.
"""

import io
import math
from collections.abc import Sequence

import cv2
import numpy as np
from PIL import Image

from vit_jax.config import Size, covers, sides
from vit_jax.data import crops, jpeg, orientation, pillow
from vit_jax.data.crops import (
  PUBLISHED,
  Box,
  Cut,
  central,
  covering,
  filter_of,
  margin,
  resized,
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
  size: Size,
  area: tuple[float, float],
  aspect: tuple[float, float],
  flip: bool,
  max_pixels: int,
  draw: crops.Draw = crops.inception,
  resampling: str = PUBLISHED,
  channels: int = RGB,
) -> Cut:
  """A random crop of the image, resized to `size` and flipped left-right with probability 0.5.

  Args:
    rng: draws the crop and the flip.
    size: of the result in pixels.
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
    pixels = _decode_for(image, box=box, height=height, width=width, size=size)
  else:
    whole = as_channels(image, channels, max_pixels=max_pixels)
    height, width = whole.shape[:2]
    box = draw(rng, height=height, width=width, area=area, aspect=aspect)
    pixels = _cut(whole, box)
  rows, columns = sides(size)
  out = resized(pixels, height=rows, width=columns, resampling=resampling)
  flipped = flip and _heads(rng)
  return Cut(_turned(out, flipped), (height, width), (height, width), box, flipped)


def train_square(
  image: bytes | np.ndarray,
  *,
  rng: np.random.Generator,
  size: Size,
  resize: Size,
  flip: bool,
  max_pixels: int,
  resampling: str = PUBLISHED,
  channels: int = RGB,
) -> Cut:
  """Resizes the image to a square, cuts out a random smaller square, flips with probability 0.5.

  Args: as `train_image`, but
    resize: size in pixels to which the whole image is first resized, whatever its aspect; covers
      `size`.

  Source: Kolesnikov et al., "Big Transfer (BiT)", 2020, Section 3.3.
  """
  whole = as_channels(image, channels, max_pixels=max_pixels)
  grid = sides(resize)
  pixels = resized(whole, height=grid[0], width=grid[1], resampling=resampling)
  box = _random_box(rng, pixels, size)
  out = np.ascontiguousarray(_cut(pixels, box))
  flipped = flip and _heads(rng)
  return Cut(_turned(out, flipped), whole.shape[:2], grid, box, flipped)


def train_padded(
  image: bytes | np.ndarray,
  *,
  rng: np.random.Generator,
  size: Size,
  pad: int,
  flip: bool,
  max_pixels: int,
  resampling: str = PUBLISHED,
  channels: int = RGB,
) -> Cut:
  """The simple random crop: a random square of the image whose smaller side is resized to `size`.

  For other rectangles, the image is resized until it covers `size`.

  Args: as `train_image`, but
    pad: pixels by which the resized image is mirrored at every edge before it is cropped; less than
      the sides of `size`.

  Source: Touvron et al., "DeiT III: Revenge of the ViT", 2022, Section 3; its code pads 4 pixels.
  """
  whole = as_channels(image, channels, max_pixels=max_pixels)
  pixels = _covering(whole, resize=size, size=size, resampling=resampling)
  height, width = covering(size, *whole.shape[:2], resampling=resampling)
  # `pixels` may be only the middle of the resized image: its place there.
  middle_top = (height - pixels.shape[0]) // 2
  middle_left = (width - pixels.shape[1]) // 2
  rows, columns = (side + 2 * pad for side in pixels.shape[:2])
  pixels = cv2.copyMakeBorder(pixels, pad, pad, pad, pad, cv2.BORDER_REFLECT_101)
  pixels = pixels.reshape(rows, columns, channels)  # OpenCV drops an axis of one channel
  there = _random_box(rng, pixels, size)
  out = np.ascontiguousarray(_cut(pixels, there))
  top = middle_top + there.top - pad
  left = middle_left + there.left - pad
  box = there._replace(top=top, left=left)
  flipped = flip and _heads(rng)
  return Cut(_turned(out, flipped), whole.shape[:2], (height, width), box, flipped)


def evaluate_image(image: bytes | np.ndarray, **how) -> np.ndarray:
  """The pixels, (H, W, channels), of `evaluation_cut`, with its arguments."""
  return evaluation_cut(image, **how).pixels


def evaluation_cut(
  image: bytes | np.ndarray,
  *,
  size: Size,
  resize: Size,
  max_pixels: int,
  squeeze: bool = False,
  resampling: str = PUBLISHED,
  channels: int = RGB,
) -> Cut:
  """Prepares an image for evaluation, with exact decoding and no randomness.

  Args:
    size: of the result in pixels.
    resize: 0: the whole image is resized to `size`, whatever its aspect. Otherwise it is resized,
      in proportion, until it covers `resize` (a square: by its smaller side), and the centre of
      `size` is cut out.
    squeeze: whether the whole image is resized to `resize` pixels, whatever its aspect.

  Raises:
    ValueError: `resize` is neither 0 nor covers `size`.
  """
  if resize and not covers(resize, size):
    raise ValueError(
      f"resize={resize} is smaller than the central crop size={size}; make it 0 or at least {size}."
    )
  whole = as_channels(image, channels, max_pixels=max_pixels)
  if resize == 0 or squeeze:
    grid = sides(resize or size)
    pixels = resized(whole, height=grid[0], width=grid[1], resampling=resampling)
  else:
    grid = covering(resize, *whole.shape[:2], resampling=resampling)
    pixels = _covering(whole, resize=resize, size=size, resampling=resampling)
  out = np.ascontiguousarray(_cut(pixels, _central_box(pixels.shape, size, resampling)))
  return Cut(out, whole.shape[:2], grid, _central_box(grid, size, resampling))


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
  if image.dtype != np.uint8 or image.ndim not in (2, 3) or not known or not image.size:
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


def as_stored(image: bytes | np.ndarray, *, max_pixels: int) -> np.ndarray:
  """As `as_channels`, for RGB of a file, and for the own channels of an array."""
  if isinstance(image, bytes) and image.startswith(_NPY):
    image = _array_in(image)
  channels = RGB
  if isinstance(image, np.ndarray):
    channels = image.shape[2] if image.ndim == 3 else 1
  return as_channels(image, channels, max_pixels=max_pixels)


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


def _decode_for(data: bytes, *, box: Box, height: int, width: int, size: Size) -> np.ndarray:
  """Decodes only the rows that a crop needs, at the lowest resolution that it needs.

  Returns:
    The crop. If it has another size than `size`, and so must be resized, it is a view of memory
    that the next call in this thread overwrites.
  """
  rows, columns = sides(size)
  most = min(box.height / rows, box.width / columns)
  factor = max(factor for factor in (1, 2, 4, 8) if factor == 1 or factor <= most)
  end = box.top + box.height
  pixels = jpeg.decode_rows(data, height=height, width=width, end=end, factor=factor)
  top = round(box.top / factor)
  left = round(box.left / factor)
  bottom = round(end / factor)
  right = round((box.left + box.width) / factor)
  crop = _cut(pixels, Box(top, left, bottom - top, right - left))
  return crop.copy() if crop.shape[:2] == (rows, columns) else crop


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


def _covering(pixels: np.ndarray, *, resize: Size, size: Size, resampling: str) -> np.ndarray:
  """Resizes an image until it covers `resize`; a very thin image is first cut to its middle."""
  height, width = covering(resize, *pixels.shape[:2], resampling=resampling)
  if height * width <= _MAX_RESIZED:
    return resized(pixels, height=height, width=width, resampling=resampling)
  if filter_of(resampling):
    return central(pixels, height=height, width=width, size=size, resampling=resampling)
  scale = max(new / old for new, old in zip(sides(resize), pixels.shape, strict=False))
  most = math.ceil(max(sides(size)) / scale) + 2  # interpolation needs a pixel at each end
  pixels = _middle(pixels, most)
  height, width = (round(length * scale) for length in pixels.shape[:2])
  return resized(pixels, height=height, width=width, resampling=resampling)


def _middle(pixels: np.ndarray, most: int) -> np.ndarray:
  """The middle of an image, with sides of at most `most` pixels, or one more to keep the centre."""
  sides = [min(side, most + (side - most) % 2) for side in pixels.shape[:2]]
  top, left = ((old - new) // 2 for old, new in zip(pixels.shape, sides, strict=False))
  return _cut(pixels, Box(top, left, *sides))


def _random_box(rng: np.random.Generator, pixels: np.ndarray, size: Size) -> Box:
  """A box of `size` at a random place."""
  height, width = sides(size)
  top = int((pixels.shape[0] - height + 1) * rng.random())
  left = int((pixels.shape[1] - width + 1) * rng.random())
  return Box(top, left, height, width)


def _central_box(whole: Sequence[int], size: Size, resampling: str) -> Box:
  """The box of `size` in the middle of rows and columns."""
  height, width = sides(size)
  top = margin(whole[0], height, resampling=resampling)
  left = margin(whole[1], width, resampling=resampling)
  return Box(top, left, height, width)
