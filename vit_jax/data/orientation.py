"""The orientation of a photograph, and its undoing.

Source: Exif 2.32, Section 4.6; TIFF 6.0, Section 2. As in Pillow, an orientation in XMP counts if
the Exif has none.
"""

import re
import struct

import numpy as np

_TAG = 0x0112
# The types of whole numbers, and how `struct` names them.
_TYPES = {1: "B", 3: "H", 4: "I", 6: "b", 8: "h", 9: "i", 13: "I", 16: "Q"}
_XMP = re.compile(rb'tiff:Orientation(?:="|>)([0-9])')


def of(exif: bytes, xmp: bytes = b"") -> int:
  """The orientation, 1 to 8; 1 (upright) if there is none, or it is broken.

  Args:
    exif: a TIFF header and what follows it; b"" if there is none.
    xmp: text of XMP; b"" if there is none.
  """
  value = _of_exif(exif)
  if value is None:
    match = _XMP.search(xmp)
    value = int(match[1]) if match else 1
  return known(value)


def known(value) -> int:
  """The value of the tag if it is an orientation; else 1."""
  if isinstance(value, bytes) and value:  # what Pillow makes of the type BYTE
    value = value[0]
  return value if isinstance(value, int) and 1 <= value <= 8 else 1


def _of_exif(exif: bytes) -> int | None:
  """The tag's first value in the first directory, 0 if it is no whole number; None: no tag."""
  order = {b"II": "<", b"MM": ">"}.get(exif[:2])
  found = None
  try:
    if not order or 42 not in exif[2:4]:
      return None
    (directory,) = struct.unpack_from(f"{order}I", exif, 4)
    (count,) = struct.unpack_from(f"{order}H", exif, directory)
    for entry in range(directory + 2, directory + 2 + 12 * count, 12):
      tag, kind, number, offset = struct.unpack_from(f"{order}HHII", exif, entry)
      if tag == _TAG:
        form = order + _TYPES.get(kind, "")
        at = offset if struct.calcsize(form) * number > 4 else entry + 8
        found = struct.unpack_from(form, exif, at)[0] if number and form[1:] else 0
  except struct.error:  # an offset points beyond the Exif data
    pass
  return found


def upright(pixels: np.ndarray, orientation: int) -> np.ndarray:
  """Undoes an Exif orientation: (H, W, 3) -> (H, W, 3), or (W, H, 3) for orientations 5 to 8."""
  if orientation in (5, 6, 7, 8):
    pixels = pixels.transpose(1, 0, 2)
  if orientation in (2, 3, 6, 7):
    pixels = pixels[:, ::-1]
  if orientation in (3, 4, 7, 8):
    pixels = pixels[::-1]
  return np.ascontiguousarray(pixels)
