"""The orientation in Exif and XMP, of any type and byte order, as Pillow's own."""

import io
import itertools
import struct

import numpy as np
import pytest
from PIL import Image, ImageOps

from tests.data.pictures import chunk, decode, picture, saved
from vit_jax.data import orientation

PIXELS = picture(16, 24)
TYPES = {1: "B", 3: "H", 4: "I", 6: "b", 8: "h", 9: "i", 13: "I"}


def exif(order: str, kind: int, value: int, *, tag=0x0112, count=1, second=b"") -> bytes:
  """A TIFF header, and a directory of one entry."""
  body = struct.pack(order + TYPES.get(kind, "I"), value).ljust(4, b"\0")
  entry = struct.pack(f"{order}HHI", tag, kind, count) + body
  begin = {"<": b"II*\0", ">": b"MM\0*"}[order]
  return begin + struct.pack(f"{order}IH", 8, 1) + entry + (second or bytes(4))


def jpeg(content: bytes, name: bytes = b"Exif\0\0") -> bytes:
  data = saved(PIXELS, "JPEG", quality=98, subsampling=0)
  segment = name + content
  return data[:2] + b"\xff\xe1" + struct.pack(">H", len(segment) + 2) + segment + data[2:]


def png(content: bytes) -> bytes:
  data = saved(PIXELS, "PNG")
  return data[:33] + chunk(b"eXIf", content) + data[33:]


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("kind", TYPES)
def test_a_value_of_any_type_of_whole_numbers(order, kind):
  for value in range(1, 9):
    assert orientation.of(exif(order, kind, value)) == value
  content = exif(order, kind, 6)
  assert decode(jpeg(content)).shape == (24, 16, 3)
  np.testing.assert_array_equal(decode(png(content)), orientation.upright(PIXELS, 6))


NONE = {
  "0": exif("<", 3, 0),
  "9": exif(">", 3, 9),
  "a large value": exif(">", 4, 6 << 16),
  "a negative value": exif("<", 8, -6),
  "a count of none": exif("<", 3, 6, count=0),
  "a text": exif("<", 2, ord("6")),
  "an unknown type": exif("<", 99, 6),
  "another tag": exif("<", 3, 6, tag=0x0113),
  "that of the thumbnail": exif("<", 3, 1, second=b"\x1a\0\0\0" + exif("<", 3, 6)[8:]),
  "the other byte order": b"MM\0*" + exif("<", 3, 6)[4:],
  "no header": b"",
  "a header of something else": b"JJ*\0" + exif("<", 3, 6)[4:],
  "a header alone": b"II*\0",
}


@pytest.mark.filterwarnings("ignore")  # Pillow's, of corrupt Exif
@pytest.mark.parametrize("which", NONE)
def test_what_is_no_orientation_leaves_the_image_as_it_is(which):
  content = NONE[which]
  assert orientation.of(content) == 1
  np.testing.assert_array_equal(decode(png(content)), PIXELS)


@pytest.mark.filterwarnings("ignore:Metadata Warning")  # Pillow's, of the count
def test_as_pillow():
  for order, kind, value in itertools.product("<>", (3, 4, 9), range(10)):
    data = jpeg(exif(order, kind, value, count=2 if kind == 3 else 1))
    wanted = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))))
    np.testing.assert_array_equal(decode(data), wanted)


@pytest.mark.parametrize("text", [b'<x tiff:Orientation="6"/>', b"<tiff:Orientation>6</x>"])
def test_xmp_counts_if_exif_says_nothing(text):
  name = b"http://ns.adobe.com/xap/1.0/\0"
  data = jpeg(text, name)
  wanted = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))))
  np.testing.assert_array_equal(decode(data), wanted)
  assert wanted.shape == (24, 16, 3)
  assert orientation.of(exif("<", 3, 3), text) == 3
  assert orientation.of(exif("<", 3, 0), text) == 1
