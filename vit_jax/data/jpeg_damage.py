"""Damaged JPEGs: an image that is whole is decoded, one that lacks pixels is refused.

Many files hold more bytes than the decoder needs, or lack their end marker; others have errors in
their pixels, which the decoder mends as it can. It warns of all these, and of a truncated file,
alike, and only its first warning can be seen. Therefore the image is decoded again with other bytes
behind its last scan: if they change a pixel, the decoder needed them, and the file was truncated.
"""

from collections.abc import Callable

import numpy as np

from vit_jax.data import jpeg_segments


class BadImage(ValueError):
  """The image cannot be used; the message says why."""


_RESTARTS = [bytes([0xFF, marker]) for marker in range(0xD0, 0xD8)]


def _more(bits: bytes) -> bytes:
  """Bits for blocks that are lacking, also behind any restart marker that the decoder waits for."""
  return bits + b"".join(restart + bits for restart in _RESTARTS)


# Two, because the first bits may be those that the decoder itself takes for lacking ones.
_MORE = (_more(bytes(range(255))), _more(bytes(range(254, -1, -1))))


def mended(data: bytes, decode: Callable[[bytes], np.ndarray]) -> bytes:
  """A JPEG that is whole, with an end marker and nothing behind it.

  Args:
    data: the file.
    decode: decodes a file, whatever the decoder warns of.

  Raises:
    BadImage: the file ends before its last pixel.
  """
  end = jpeg_segments.end(data)
  body = data.rstrip(b"\0") if end is None else data[:end]
  if body.endswith(b"\xff"):  # a byte of the scan, which would be a marker without the zero
    body += b"\0"
  whole = body + jpeg_segments.END
  pixels = decode(whole)
  complete = end is not None or jpeg_segments.has_every_scan(data)
  others = (decode(body + more + jpeg_segments.END) for more in _MORE)
  if not complete or not all(np.array_equal(pixels, other) for other in others):
    raise BadImage("The JPEG is truncated: pixels are missing at its end.")
  return whole
