"""Reads the Exif orientation of a photograph, and turns its pixels upright.

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
  """The orientation, 1 to 8; 1 (upright) if it is missing or broken.

  Args:
    exif: the Exif data, which begin with a TIFF header; b"" if there are none.
    xmp: text of XMP; b"" if there is none.
  """
  value = _of_exif(exif)
  if value is not None:
    return known(value)
  match = _XMP.search(xmp)
  if match:
    return known(int(match[1]))
  return 1


def known(value) -> int:
  """The value of the tag if it is an orientation; else 1."""
  if isinstance(value, bytes) and value:  # Pillow's value for the type BYTE
    value = value[0]
  if isinstance(value, int) and 1 <= value <= 8:
    return value
  return 1


def _of_exif(exif: bytes) -> int | None:
  """The tag's value in the first directory; 0 if it is not a whole number; None without the tag."""
  order = {b"II": "<", b"MM": ">"}.get(exif[:2])
  found = None
  try:
    if not order or 42 not in exif[2:4]:
      return None
    (directory,) = struct.unpack_from(f"{order}I", exif, 4)
    (count,) = struct.unpack_from(f"{order}H", exif, directory)
    for entry in range(directory + 2, directory + 2 + 12 * count, 12):
      tag, kind, number, offset = struct.unpack_from(f"{order}HHII", exif, entry)
      if tag != _TAG:
        continue
      value = 0
      if number and kind in _TYPES:
        form = order + _TYPES[kind]
        if struct.calcsize(form) * number <= 4:  # the entry holds the values, not their offset
          offset = entry + 8
        (value,) = struct.unpack_from(form, exif, offset)
      found = value
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
