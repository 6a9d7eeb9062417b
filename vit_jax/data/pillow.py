"""Decodes all kinds of image files to RGB pixels with Pillow; slower than `jpeg`.

If a file holds several images, such as a TIFF of many pages or an animation, reads the first.

Samples of 16 bits are divided by 256, because in PNG and TIFF 65535 is white. Many files break this
rule: they hold the 8, 10 or 12 bits of a camera unchanged, and would silently become black. One
image does not show which range was meant, and different guesses for a bright and a dark image of
the same camera would be wrong too. Therefore an image is refused if all of its 16-bit samples are
below a sixteenth of white.

Only formats that Pillow decodes by itself are read: others start programs (EPS) or are rare. Parts
of a file that take time or memory but hold no pixels are limited, so that no image holds up a run.
"""

import functools
import io

import numpy as np
from PIL import (
  AvifImagePlugin,
  ExifTags,
  Image,
  ImageChops,
  TiffImagePlugin,
  UnidentifiedImageError,
)

from vit_jax.data import jpeg, orientation
from vit_jax.data.image_files import SUFFIXES
from vit_jax.data.jpeg import BadImage

_FORMATS = tuple(dict.fromkeys(SUFFIXES.values()))
_NAMES = "JPEG, PNG, WebP, GIF, AVIF, TIFF, BMP or PPM"
_DARK = 16  # of 256; if all samples of a 16-bit file are below, the file uses another range
_TILE_PIXELS = 2**26  # largest tile of a TIFF; a tile is decoded whole, even for a small image
_MAX_CHUNKS = 1000  # chunks of a PNG that are not frames; each may be a compressed colour profile
_GIF_HEAD = 2**18  # bytes; Pillow copies a comment again for every block of it
_MAX_STRIPS = 2**20  # strips or tiles of a TIFF, each of which costs time and memory
_COLOURED = ("RGB", "RGBA", "CMYK")
_NO_WHITE = (
  "Its samples are fractions, signed or of 32 bits, so the value of white is unknown; save the"
  " image with 8 or 16 bits."
)
_OTHER_TIFF = (
  "It is a TIFF that is damaged, or whose bands, samples or compression are not read; save it as"
  " RGB or grey of 8 or 16 bits, or all its bands by numpy.save as uint8 (H, W, channels), and give"
  " config.model.channels."
)

# TIFF tags.
_BITS = 258
_PHOTOMETRIC = 262
_SAMPLES = 277
_PLANAR = 284
_TILE_SIDES = (323, 322)
_SAMPLE_FORMAT = 339
_STRIPS = 273
_TILES = 324
# Values of these tags.
_WHITE_IS_ZERO = 0  # _PHOTOMETRIC
_APART = 2  # _PLANAR
_UNSIGNED = 1  # _SAMPLE_FORMAT

SCALED = {"L;2": 85, "L;4": 17}  # the step between levels of grey in samples of few bits

# `check_size` checks the size instead, against the user's limit.
Image.MAX_IMAGE_PIXELS = None
AvifImagePlugin.DEFAULT_MAX_THREADS = 1  # as with OpenCV: our own threads decode one image each


def decode(data: bytes, *, max_pixels: int, transparency: bool = False) -> np.ndarray:
  """(H, W, 3) uint8 RGB, upright; with `transparency` (H, W, 4), where 255 is opaque.

  Raises:
    BadImage: the file has another format, is broken or truncated, or has more than `max_pixels`
      pixels; or the value of white is unknown.
  """
  try:
    _check_beginning(data)
    decode = functools.partial(_decoded, max_pixels=max_pixels, transparency=transparency)
    if jpeg.is_jpeg(data):
      data = jpeg.mended(data, decode)
    return decode(data)
  except (BadImage, MemoryError):
    raise
  except UnidentifiedImageError as error:  # its own message names a Python object
    if data[:4] in TiffImagePlugin.PREFIXES:
      raise BadImage(_OTHER_TIFF) from error
    raise BadImage(f"Not a {_NAMES}.") from error
  except Exception as error:  # Pillow's decoders raise many kinds of errors on damaged bytes
    raise BadImage(f"Not a {_NAMES} that can be decoded: {error}") from error


def _decoded(data: bytes, *, max_pixels: int, transparency: bool) -> np.ndarray:
  """As `decode`, with Pillow's own errors."""
  with Image.open(io.BytesIO(data), formats=_FORMATS) as image:
    check_size(image.height, image.width, max_pixels=max_pixels)
    if image.mode == "F":
      raise BadImage(_NO_WHITE)
    bits = _bits(image)
    if image.format == "TIFF":
      _check_tags(image, bits)
    _scale_key(image, bits)
    image.load()
    return _upright(image, bits, transparency)


def of_opened(image: Image.Image, *, transparency: bool = False) -> np.ndarray:
  """As `decode`, for an image that Pillow has opened or made.

  Not for two threads at once: an image whose file is not read yet is read now.

  Raises:
    BadImage: the value of white is unknown, or Pillow cannot read or convert the image.
  """
  if image.mode[:1] in "IF":
    raise BadImage(
      f"its mode is {image.mode}, which Pillow would clip to white; give the path of its file, or "
      "uint8 pixels: samples of 16 bits are divided by 256."
    )
  bits = 8
  try:
    if image.format:  # empty if the image was not opened from a file
      bits = _bits(image)
      _scale_key(image, bits)
    return _upright(image, bits, transparency)
  except (BadImage, MemoryError):
    raise
  except Exception as error:  # Pillow raises many kinds, of damaged bytes and closed files
    reason = str(error) or "was its file closed before the image was loaded?"
    raise BadImage(f"Pillow cannot give its pixels: {reason}") from error


def _upright(image: Image.Image, bits: int, transparency: bool) -> np.ndarray:
  converted = _as_rgb8
  if transparency:
    converted = _as_rgba8
  return orientation.upright(converted(image, bits), _orientation(image))


def check_size(height: int, width: int, *, max_pixels: int) -> None:
  """Raises BadImage if an image has more than `max_pixels` pixels."""
  if height * width > max_pixels:
    raise BadImage(
      f"{width} x {height} pixels are more than the {max_pixels} that are allowed; raise the limit"
      " of pixels to use this image."
    )


def _check_beginning(data: bytes) -> None:
  """Refuses files that are slow to open, before their size in pixels is known."""
  if data.startswith(b"\x89PNG") and _chunks(data) > _MAX_CHUNKS:
    raise BadImage(f"It is a PNG of over {_MAX_CHUNKS:,} chunks without pixels; save it again.")
  if data.startswith(b"GIF8"):
    with Image.open(io.BytesIO(data[:_GIF_HEAD]), formats=["GIF"]):
      pass
  if data[:4] in TiffImagePlugin.PREFIXES:
    _check_strips(data)


def _check_strips(data: bytes) -> None:
  """Refuses a TIFF of too many strips or tiles."""
  header_size = 16 if b"+" in data[2:4] else 8  # BigTIFF has the larger one
  stream = io.BytesIO(data)
  tags = TiffImagePlugin.ImageFileDirectory_v2(stream.read(header_size))
  stream.seek(tags.next)
  tags.load(stream)
  if any(len(tags.get(tag, ())) > _MAX_STRIPS for tag in (_STRIPS, _TILES)):
    raise BadImage(f"It is a TIFF of more than {_MAX_STRIPS:,} strips or tiles; save it again.")


def _chunks(data: bytes) -> int:
  """The number of chunks of a PNG that hold no frame."""
  at = 8
  count = 0
  while at < len(data):
    count += data[at + 4 : at + 8] not in (b"IDAT", b"fdAT", b"fcTL")
    at += 12 + int.from_bytes(data[at : at + 4], "big")
  return count


def _check_tags(image: Image.Image, bits: int) -> None:
  """Refuses a TIFF that Pillow would read wrongly, or with much memory."""
  tags = image.tag_v2
  if {*tags.get(_SAMPLE_FORMAT, [_UNSIGNED])} != {_UNSIGNED} or image.mode == "I":
    raise BadImage(_NO_WHITE)
  planes = 1
  if tags.get(_PLANAR) == _APART:
    planes = len(image.getbands())
  if planes > 1 and (bits > 8 or image.mode not in _COLOURED):
    raise BadImage(
      f"It is a TIFF with {bits}-bit channels in separate planes, which is not supported; save it"
      " with the channels of each pixel together."
    )
  height, width = (tags.get(side, 0) for side in _TILE_SIDES)
  if height * width > _TILE_PIXELS:
    raise BadImage(f"It has tiles of {width} x {height} pixels; the most is {_TILE_PIXELS} pixels.")
  present = 0
  for tile in image.tile:
    left, top, right, bottom = tile.extents
    present += (right - left) * (bottom - top)
  needed = image.height * image.width
  if image.tile[0].codec_name == "raw":  # each plane has tiles of its own
    needed *= planes
  if present < needed:
    raise BadImage("It is a TIFF that lacks some of its strips or tiles; save the image again.")


def raw_mode(image: Image.Image) -> tuple:
  """Pillow's description of the stored samples: the raw mode, and for PPM the value of white."""
  if not image.tile:
    return ("",)
  args = image.tile[0].args
  return args if isinstance(args, tuple) else (args,)


def _bits(image: Image.Image) -> int:
  """Bits per sample of an opened file that is not loaded yet; 8 if a sample has fewer."""
  if image.format == "TIFF":
    return max(8, *image.tag_v2.get(_BITS, (1,)))  # without the tag, a sample has one bit
  stored = raw_mode(image)
  if image.format == "PNG" and stored[0].endswith(";16B"):
    return 16
  if image.format == "PPM":
    white = stored[-1]
    if image.mode == "I" or (type(white) is int and white > 255):
      return 16
  return 8


def _scale_key(image: Image.Image, bits: int):
  """Scales the transparent grey of a PNG as Pillow scales samples of 2 or 4 bits.

  Raises:
    BadImage: the transparent colour has 16 bits a sample, which Pillow compares with 8 of them.
  """
  key = image.info.get("transparency")
  if image.format == "PNG" and type(key) is tuple and bits > 8:
    raise BadImage(
      "It is a PNG of 16 bits with a transparent colour, which cannot be told exactly; save it with"
      " 8 bits, or with an alpha channel."
    )
  if image.format == "PNG" and type(key) is int:
    image.info["transparency"] = key * SCALED.get(raw_mode(image)[0], 1)


def _as_rgb8(image: Image.Image, bits: int) -> np.ndarray:
  """(H, W, 3) uint8, in the stored orientation."""
  if image.mode.startswith("I"):  # grey with more than 8 bits, which Pillow would clip, not scale
    return _grey8(image, bits)
  if bits > 8:
    bands = zip(image.getbands(), image.getextrema(), strict=True)
    _check_brightest(max(most for band, (_, most) in bands if band != "A"), bits)
  if image.mode == "CMYK" and image.format not in ("TIFF", None) and "adobe" not in image.info:
    image = ImageChops.invert(image)  # Pillow treated it as Adobe's inverted CMYK
  if image.has_transparency_data:
    rgba = image.convert("RGBA")
    image = Image.alpha_composite(Image.new("RGBA", rgba.size, "white"), rgba)
  return np.asarray(image.convert("RGB"))


def _as_rgba8(image: Image.Image, bits: int) -> np.ndarray:
  """(H, W, 4) uint8, in the stored orientation.

  Raises:
    BadImage: it is a TIFF with a fourth channel other than transparency, which Pillow leaves out.
  """
  if image.format == "TIFF" and image.tag_v2.get(_SAMPLES, 1) > len(image.getbands()):
    raise BadImage(
      "It is a TIFF with a channel beside RGB that is not transparency; save the pixels with "
      "numpy.save, as uint8 (H, W, 4)."
    )
  pixels = _as_rgb8(image, bits)
  if image.has_transparency_data and not image.mode.startswith("I"):
    return np.asarray(image.convert("RGBA"))
  return np.pad(pixels, ((0, 0), (0, 0), (0, 1)), constant_values=255)


def _grey8(image: Image.Image, bits: int) -> np.ndarray:
  """Reduces grey samples of 12 or 16 bits to (H, W, 3) uint8."""
  samples = np.asarray(image).astype(np.uint16)
  grey = (samples >> (bits - 8)).astype(np.uint8)
  _check_brightest(int(grey.max()), bits)
  if image.format == "TIFF" and image.tag_v2.get(_PHOTOMETRIC, 0) == _WHITE_IS_ZERO:
    grey = 255 - grey
  if isinstance(image.info.get("transparency"), int):
    grey[samples == image.info["transparency"]] = 255
  return np.stack([grey] * 3, -1)


def _check_brightest(value: int, bits: int) -> None:
  """Refuses an image that would look black; `value` is its largest sample, reduced to 8 bits."""
  if value < _DARK:
    raise BadImage(
      f"Its {bits}-bit samples are all below {2**bits // 256 * _DARK} of {2**bits - 1}, so it would"
      f" look black; save it with 8 bits, or with samples up to {2**bits - 1}."
    )


def _orientation(image: Image.Image) -> int:
  try:
    return orientation.known(image.getexif().get(ExifTags.Base.Orientation))
  except Exception:  # an image with broken Exif is still usable
    return 1
