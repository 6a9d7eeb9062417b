"""Decodes JPEG bytes to RGB pixels; for training, only as much as a crop needs.

Four things save work in training. Rows below the crop are not decoded: the height in the frame
header is set to the end of the crop, and the decoder stops there. A crop of at least twice the
wanted size is decoded at 1/2, 1/4 or 1/8 in the DCT. Chroma is repeated, not smoothed. Each thread
reuses one buffer for the pixels. A truncated file is always detected. Evaluation uses `decode`,
which is exact.

A scan costs time for every block of the image, even if it has only a few bytes. A small file can
hold thousands, so files with more than `MAX_SCANS` are refused, as other libraries do.

Many files hold more bytes than the decoder needs, or lack their end marker; others have errors in
their pixels, which the decoder conceals. Its warnings do not tell these from a truncated file, and
only the first one is visible. Therefore a damaged image is decoded again with other bytes after its
last scan (`mended`): if they change a pixel, the decoder needed them, and the file was truncated.

Source of the format: ITU-T T.81, Annex B; Exif 2.32, Section 4.
"""

import functools
import re
import struct
import threading
from collections.abc import Callable, Iterator

import numpy as np
import simplejpeg

MAX_SCANS = 500  # the usual progressive file has 10
START = b"\xff\xd8\xff"
END = b"\xff\xd9"

_APP1 = 0xE1
# The names of APP1 segments.
_EXIF = b"Exif\0\0"
_XMP = b"http://ns.adobe.com/xap/1.0/\0"
_SEQUENTIAL = (0xC0, 0xC1)  # frame headers of JPEGs that store rows from top to bottom
_OTHER_FRAMES = (*range(0xC2, 0xC4), *range(0xC5, 0xC8), *range(0xC9, 0xCC), *range(0xCD, 0xD0))
_SCAN = 0xDA
_INTERVALS = 0xDD  # defines the restart interval
# As in the decoder, other bytes may lie between segments. 00 and D0 to D7 occur inside scans.
_MARKER = re.compile(rb"\xff[^\x00\x01\xd0-\xd7\xff]")
_COEFFICIENTS = 64  # per block


def segments(data: bytes) -> Iterator[tuple[int, int, int]]:
  """Each segment before the end marker: its own marker, and the begin and end of its content."""
  at = 2
  while match := _MARKER.search(data, at):
    at = match.end()
    marker = data[at - 1]
    if marker == END[1]:
      return
    end = at + int.from_bytes(data[at : at + 2], "big")
    yield marker, at + 2, end
    at = end


def end_of_image(data: bytes) -> int | None:
  """The offset of the image's end marker; None if there is none."""
  last_end = max((end for *_, end in segments(data)), default=2)
  match = _MARKER.search(data, last_end)
  return match.start() if match else None


def exif(data: bytes) -> bytes:
  """The Exif before the first scan, without its name; b"" if there is none."""
  return b"".join(_app1(data, _EXIF))


def xmp(data: bytes) -> bytes:
  """The last XMP before the first scan; b"" if there is none."""
  return next(reversed([b"", *_app1(data, _XMP)]))


def _app1(data: bytes, name: bytes) -> Iterator[bytes]:
  """The contents of the APP1 segments of a name before the first scan."""
  for marker, at, end in segments(data):
    if marker == _SCAN:
      return
    if marker == _APP1 and data[at : min(at + len(name), end)] == name:
      yield data[at + len(name) : end]


def scans(data: bytes) -> int:
  """The number of scans, counted up to `MAX_SCANS` + 1."""
  count = 0
  components = b""
  for marker, at, _ in segments(data):
    if marker in _SEQUENTIAL:
      components = data[at + 5 : at + 6]
    if marker == _SCAN:
      count += 1
      # A sequential frame whose first scan has all components has no other scan.
      if data[at : at + 1] == components or count > MAX_SCANS:
        break
  return count


def height_field(data: bytes) -> int | None:
  """Offset of the height in the frame header; None if a smaller height would not cut off rows.

  This is so for progressive and other frames, which spread rows over the file, and for files with
  restart markers, which would hide where the decoder stopped.
  """
  field = None
  for marker, at, _ in segments(data):
    if marker == _SCAN:
      return field
    if marker == _INTERVALS or marker in _OTHER_FRAMES:
      return None
    if marker in _SEQUENTIAL:
      field = at + 1
  return None


def has_every_scan(data: bytes) -> bool:
  """Whether the scan headers cover every coefficient of every component, to its last bit."""
  components = -1
  done = set()
  for marker, at, end in segments(data):
    content = data[at:end]
    if marker in (*_SEQUENTIAL, *_OTHER_FRAMES) and len(content) > 5:
      components = content[5]
    if marker == _SCAN and len(content) > 3 and content[-1] & 15 == 0:
      spectrum = range(content[-3], content[-2] + 1)
      done |= {(content[1 + 2 * i], k) for i in range((len(content) - 4) // 2) for k in spectrum}
  return len(done) == components * _COEFFICIENTS


class BadImage(ValueError):
  """The image cannot be used; the message says why."""


_RESTARTS = [bytes([0xFF, marker]) for marker in range(0xD0, 0xD8)]


def _more(bits: bytes) -> bytes:
  """Bits for missing blocks, also after any restart marker that the decoder waits for."""
  return bits + b"".join(restart + bits for restart in _RESTARTS)


# Two, because the first one may equal the bits that the decoder itself uses for missing ones.
_MORE = (_more(bytes(range(255))), _more(bytes(range(254, -1, -1))))


def mended(data: bytes, decode: Callable[[bytes], np.ndarray]) -> bytes:
  """The complete JPEG, with an end marker and nothing after it.

  Args:
    data: the file.
    decode: decodes a file and ignores the decoder's warnings.

  Raises:
    BadImage: the file ends before its last pixel.
  """
  end = end_of_image(data)
  if end is None:
    body = data.rstrip(b"\0")
  else:
    body = data[:end]
  if body.endswith(b"\xff"):  # a byte of the scan, which needs the zero to be no marker
    body += b"\0"
  whole = body + END
  pixels = decode(whole)
  complete = end is not None or has_every_scan(data)
  others = (decode(body + more + END) for more in _MORE)
  if not complete or not all(np.array_equal(pixels, other) for other in others):
    raise BadImage("The JPEG is truncated: pixels are missing at its end.")
  return whole


_COLOURS = ("YCbCr", "RGB", "Gray")  # not CMYK and YCCK
# The decoder's message if rows were left out and there was no other error before.
_STOPPED_EARLY = "extraneous bytes before marker 0xd9"
# The decoder's warnings, after which it continues; an error would be its last message.
_WARNING = re.compile(
  "Corrupt JPEG data|Premature end of JPEG file|Warning|Inconsistent progression"
  "|Invalid SOS parameters for sequential|Unknown Adobe color transform"
)

_scratch = threading.local()


def is_jpeg(data: bytes) -> bool:
  """Whether the bytes begin like a JPEG; the name of the file does not matter."""
  return data.startswith(START)


def read_size(data: bytes) -> tuple[int, int] | None:
  """(height, width), or None if this module cannot decode the file; Pillow may be able to.

  Raises:
    BadImage: there are too many scans.
  """
  if scans(data) > MAX_SCANS:
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
  """The pixels that `decode` returns; if it finds damage, those of the mended file."""
  try:
    return decode(data)
  except ValueError:
    pass
  try:
    whole = mended(data, lambda data: _lenient(data, simplejpeg.decode_jpeg))
    return _lenient(whole, decode)
  except BadImage:
    raise
  except ValueError as error:
    raise BadImage(f"The JPEG is broken: {error}") from error


def _lenient(data: bytes, decode: Callable[..., np.ndarray]) -> np.ndarray:
  """The pixels that `decode` returns, despite warnings."""
  try:
    return decode(data)
  except ValueError as error:
    if not _WARNING.match(str(error)):
      raise
  return decode(data, strict=False)  # ignores errors too


def decode_rows(data: bytes, *, height: int, width: int, end: int, factor: int) -> np.ndarray:
  """Decodes at least the rows above `end`, reduced `factor` times.

  Args:
    data: a JPEG of `height` x `width` pixels.
    height: rows in the file.
    width: columns in the file.
    end: the first row that is not needed.
    factor: 1, 2, 4 or 8.

  Returns:
    (>= end / factor, width / factor, 3) uint8 RGB, sides rounded up, in a buffer that the next call
    in this thread overwrites.

  Raises:
    BadImage: the file is truncated, or cannot be decoded.
  """
  at = height_field(data) if end < height else None
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
