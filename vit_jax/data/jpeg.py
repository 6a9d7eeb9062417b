"""Decodes JPEG bytes to RGB pixels; for training, only as much as a crop needs.

Four things save work in training. Rows below the crop are not decoded: the height in the frame
header is set to the end of the crop, and the decoder stops there. A crop of at least twice the
wanted size is decoded at 1/2, 1/4 or 1/8 in the DCT. Chroma is repeated, not smoothed. Each thread
reuses one buffer for the pixels. Damage in the decoded rows, and a file that ends too early, are
always found. Evaluation uses `decode`, which is exact.

A scan costs time for every block of the image, even if it has only a few bytes. A small file can
hold thousands, so files with more than `MAX_SCANS` are refused, as other libraries do.
"""

import re
import struct
import threading
from collections.abc import Iterator

import numpy as np
import simplejpeg

MAX_SCANS = 500  # the usual progressive file has 10

_START = b"\xff\xd8\xff"
_EXIF, _EXIF_BEGIN = 0xE1, b"Exif\0\0"
_ORIENTATION = 0x0112
_COLOURS = ("YCbCr", "RGB", "Gray")  # not CMYK and YCCK
_SEQUENTIAL = (0xC0, 0xC1)  # frame headers of JPEGs that store rows from top to bottom
_OTHER_FRAMES = (*range(0xC2, 0xC4), *range(0xC5, 0xC8), *range(0xC9, 0xCC), *range(0xCD, 0xD0))
_SCAN, _RESTARTS, _END = 0xDA, 0xDD, 0xD9
# As in the decoder, other bytes may lie between segments. 00 and D0 to D7 occur inside of scans.
_MARKER = re.compile(rb"\xff[^\x00\x01\xd0-\xd7\xff]")
# The decoder's message if rows were left out and it found no other error before.
_STOPPED_EARLY = re.compile("extraneous bytes before marker 0xd9")

_scratch = threading.local()


class BadImage(ValueError):
  """The image cannot be used; the message says why."""


def is_jpeg(data: bytes) -> bool:
  """Whether the bytes begin like a JPEG; the name of the file does not matter."""
  return data.startswith(_START)


def orientation(data: bytes) -> int:
  """The Exif orientation, 1 to 8; 1 (upright) if there is none or the Exif is broken."""
  tiff = _exif(data)
  order = ">" if tiff.startswith(b"MM") else "<"
  try:
    (directory,) = struct.unpack_from(f"{order}I", tiff, 4)
    (count,) = struct.unpack_from(f"{order}H", tiff, directory)
    for entry in range(directory + 2, directory + 2 + 12 * count, 12):
      tag, _, _, value = struct.unpack_from(f"{order}HHIH", tiff, entry)
      if tag == _ORIENTATION:
        return value if 1 <= value <= 8 else 1
  except struct.error:  # an offset points beyond the Exif data
    pass
  return 1


def _exif(data: bytes) -> bytes:
  """The Exif without its name; b"" if there is none before the first scan."""
  for marker, at, end in _segments(data):
    if marker == _SCAN:
      break
    begin = at + len(_EXIF_BEGIN)
    if marker == _EXIF and data[at : min(begin, end)] == _EXIF_BEGIN:
      return data[begin:end]
  return b""


def _segments(data: bytes) -> Iterator[tuple[int, int, int]]:
  """Each segment before the end of the image: its marker, and where its content lies."""
  at = 2
  while (match := _MARKER.search(data, at)) and (marker := data[match.end() - 1]) != _END:
    at = match.end()
    end = at + int.from_bytes(data[at : at + 2], "big")
    yield marker, at + 2, end
    at = end


def _scans(data: bytes) -> int:
  """The number of scans, counted up to `MAX_SCANS` + 1."""
  count, components = 0, b""
  for marker, at, _ in _segments(data):
    if marker in _SEQUENTIAL:
      components = data[at + 5 : at + 6]
    if marker == _SCAN:
      count += 1
      # A sequential frame whose first scan has all components has no other scan.
      if data[at : at + 1] == components or count > MAX_SCANS:
        break
  return count


def upright(pixels: np.ndarray, orientation: int) -> np.ndarray:
  """Undoes an Exif orientation: (H, W, 3) -> (H, W, 3), or (W, H, 3) for orientations 5 to 8."""
  if orientation in (5, 6, 7, 8):
    pixels = pixels.transpose(1, 0, 2)
  if orientation in (2, 3, 6, 7):
    pixels = pixels[:, ::-1]
  if orientation in (3, 4, 7, 8):
    pixels = pixels[::-1]
  return np.ascontiguousarray(pixels)


def read_size(data: bytes) -> tuple[int, int] | None:
  """(height, width), or None if this module cannot decode the file; Pillow may.

  Raises:
    BadImage: there are too many scans.
  """
  if _scans(data) > MAX_SCANS:
    raise BadImage(f"The JPEG has more than {MAX_SCANS} scans; save it again.")
  try:
    height, width, colours, _ = simplejpeg.decode_jpeg_header(data)
  except (ValueError, KeyError):  # the header is broken, or its chroma is sampled in a rare way
    return None
  return (height, width) if colours in _COLOURS else None


def decode(data: bytes) -> np.ndarray:
  """Decodes every pixel exactly: (H, W, 3) uint8 RGB.

  Raises:
    BadImage: the file is damaged or truncated.
  """
  try:
    return simplejpeg.decode_jpeg(data)
  except ValueError as error:
    raise BadImage(f"The JPEG is broken or truncated: {error}") from error


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
    BadImage: the file is damaged above `end`, or truncated.
  """
  at = _height_field(data) if end < height else None
  if at is not None:
    shortened = bytearray(data)
    struct.pack_into(">H", shortened, at, end)
    try:
      return _decode_reduced(shortened, height=end, width=width, factor=factor)
    except ValueError as error:
      if _STOPPED_EARLY.search(str(error)):
        return _reduced_view(height=end, width=width, factor=factor)
  try:
    return _decode_reduced(data, height=height, width=width, factor=factor)
  except ValueError as error:
    raise BadImage(f"The JPEG is broken or truncated: {error}") from error


def _decode_reduced(data, *, height: int, width: int, factor: int) -> np.ndarray:
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


def _height_field(data: bytes) -> int | None:
  """Offset of the height in the frame header, if changing it can cut off rows; else None.

  None for progressive and other frames, which spread rows over the file, and for files with restart
  markers, which would hide where the decoder stopped.
  """
  field = None
  for marker, at, _ in _segments(data):
    if marker == _SCAN:
      return field
    if marker == _RESTARTS or marker in _OTHER_FRAMES:
      return None
    if marker in _SEQUENTIAL:
      field = at + 1
  return None
