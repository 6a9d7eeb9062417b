"""Decodes JPEG bytes to RGB pixels; for training, only as much as a crop needs.

Four things save work in training. Rows below the crop are not decoded: the height in the frame
header is set to the end of the crop, and the decoder stops there. A crop of at least twice the
wanted size is decoded at 1/2, 1/4 or 1/8 in the DCT. Chroma is repeated, not smoothed. Each thread
reuses one buffer for the pixels. A file that ends too early is always found. Evaluation uses
`decode`, which is exact. `jpeg_damage` says what becomes of damaged files.

A scan costs time for every block of the image, even if it has only a few bytes. A small file can
hold thousands, so files with more than `MAX_SCANS` are refused, as other libraries do.
"""

import functools
import re
import struct
import threading
from collections.abc import Callable

import numpy as np
import simplejpeg

from vit_jax.data import jpeg_damage, jpeg_segments
from vit_jax.data.jpeg_damage import BadImage as BadImage
from vit_jax.data.jpeg_segments import MAX_SCANS

_COLOURS = ("YCbCr", "RGB", "Gray")  # not CMYK and YCCK
# The decoder's message if rows were left out and it found no other error before.
_STOPPED_EARLY = "extraneous bytes before marker 0xd9"
# The decoder's warnings, after which it goes on; its last message is an error if there was one.
_WARNING = re.compile(
  "Corrupt JPEG data|Premature end of JPEG file|Warning|Inconsistent progression"
  "|Invalid SOS parameters for sequential|Unknown Adobe color transform"
)

_scratch = threading.local()


def is_jpeg(data: bytes) -> bool:
  """Whether the bytes begin like a JPEG; the name of the file does not matter."""
  return data.startswith(jpeg_segments.START)


def read_size(data: bytes) -> tuple[int, int] | None:
  """(height, width), or None if this module cannot decode the file; Pillow may.

  Raises:
    BadImage: there are too many scans.
  """
  if jpeg_segments.scans(data) > MAX_SCANS:
    raise BadImage(f"The JPEG has more than {MAX_SCANS} scans; save it again.")
  try:
    height, width, colours, _ = simplejpeg.decode_jpeg_header(data)
  except (ValueError, KeyError):  # the header is broken, or its chroma is sampled in a rare way
    return None
  return (height, width) if colours in _COLOURS else None


def decode(data: bytes) -> np.ndarray:
  """Decodes every pixel exactly: (H, W, 3) uint8 RGB.

  Raises:
    BadImage: the file is truncated, or cannot be decoded.
  """
  return _decoded(data, simplejpeg.decode_jpeg)


def _decoded(data: bytes, decode: Callable[..., np.ndarray]) -> np.ndarray:
  """The pixels that `decode` gives; if it finds any damage, those of the mended file."""
  try:
    return decode(data)
  except ValueError:
    pass
  try:
    whole = jpeg_damage.mended(data, lambda data: _lenient(data, simplejpeg.decode_jpeg))
    return _lenient(whole, decode)
  except BadImage:
    raise
  except ValueError as error:
    raise BadImage(f"The JPEG is broken: {error}") from error


def _lenient(data: bytes, decode: Callable[..., np.ndarray]) -> np.ndarray:
  """The pixels that `decode` gives, whatever it warns of."""
  try:
    return decode(data)
  except ValueError as error:
    if not _WARNING.match(str(error)):
      raise
  return decode(data, strict=False)  # this ignores errors too


def decode_rows(data: bytes, *, height: int, width: int, end: int, factor: int) -> np.ndarray:
  """Decodes at least the rows above `end`, reduced `factor` times.

  Args:
    data: a JPEG of `height` x `width` pixels.
    height: rows in the file.
    width: columns in the file.
    end: rows from here on are not needed.
    factor: 1, 2, 4 or 8.

  Returns:
    (>= end / factor, width / factor, 3) uint8 RGB, sides rounded up, in a buffer that the next
    call in this thread overwrites.

  Raises:
    BadImage: the file is truncated, or cannot be decoded.
  """
  at = jpeg_segments.height_field(data) if end < height else None
  if at is not None:
    shortened = bytearray(data)
    struct.pack_into(">H", shortened, at, end)
    try:
      return _decode_reduced(shortened, height=end, width=width, factor=factor)
    except ValueError as error:
      if _STOPPED_EARLY in str(error):
        return _reduced_view(height=end, width=width, factor=factor)
  decode = functools.partial(_decode_reduced, height=height, width=width, factor=factor)
  return _decoded(data, decode)


def _decode_reduced(
  data, *, height: int, width: int, factor: int, strict: bool = True
) -> np.ndarray:
  out = _reduced_view(height=height, width=width, factor=factor)
  # Chroma is repeated, not smoothed. The difference is not visible in a resized crop, and the last
  # row does not need the chroma of the next row, which is not decoded.
  simplejpeg.decode_jpeg(
    data,
    fastupsample=True,
    min_height=out.shape[0],
    min_width=out.shape[1],
    min_factor=factor,
    buffer=out,
    strict=strict,
  )
  return out


def _reduced_view(*, height: int, width: int, factor: int) -> np.ndarray:
  """This thread's buffer, shaped for the reduced image.

  New memory for every image would cost half a megabyte of page faults: a fifth of the decoding.
  """
  shape = (-(-height // factor), -(-width // factor), 3)
  size = shape[0] * shape[1] * shape[2]
  buffer = getattr(_scratch, "buffer", None)
  if buffer is None or buffer.size < size:
    buffer = _scratch.buffer = np.empty(size, np.uint8)
  return buffer[:size].reshape(shape)
