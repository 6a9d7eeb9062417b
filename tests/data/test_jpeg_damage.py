"""A JPEG whose pixels are all there is decoded, whatever else is wrong with it."""

import functools
import io

import numpy as np
import pytest
from PIL import Image

from tests.data.pictures import decode, encodings, picture, saved, see, whole
from vit_jax.data import images

KINDS = ("jpeg", "progressive", "cmyk", "restarts")
JUNK = np.random.default_rng(0).integers(1, 255, 50, np.uint8).tobytes()
END = b"\xff\xd9"
WHOLE = {
  "junk before the end marker": lambda data: data[:-2] + JUNK + END,
  "zeros before the end marker": lambda data: data[:-2] + bytes(252) + END,
  "no end marker": lambda data: data[:-2],
  "half of the end marker": lambda data: data[:-1],
  "zeros for the end marker": lambda data: data[:-2] + bytes(64),
  "junk for the end marker": lambda data: data[:-2] + JUNK,
  "bytes behind the end marker": lambda data: data + JUNK,
  "another image behind it": lambda data: data + data[: len(data) // 2],
}
TRUNCATED = {
  "cut": lambda data: data[: len(data) // 2],
  "cut, with an end marker": lambda data: data[: len(data) // 2] + END,
  "cut, with zeros": lambda data: data[: len(data) // 2] + bytes(len(data)),
  "cut near the end": lambda data: data[:-20] + END,
  "junk before a marker that is too early": lambda data: data[:-100] + JUNK[:9] + END,
  # What the decoder calls an error: it would leave the pixels as they were in memory.
  "two beginnings": lambda data: data[:2] + data,
  "an unknown table": lambda data: data.replace(b"\xff\xc4", b"\xff\xc8", 1),
  "two beginnings and junk": lambda data: data[:2] + data[:-2] + JUNK + END,
  "both": lambda data: data.replace(b"\xff\xc4", b"\xff\xc8", 1)[:-2] + JUNK + END,
}


def a_jpeg(kind: str) -> bytes:
  if kind == "restarts":
    return saved(picture(64, 80), "JPEG", restart_marker_blocks=4)
  return encodings()[kind]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("damage", WHOLE)
def test_what_is_whole_is_decoded(kind, damage):
  data = a_jpeg(kind)
  damaged = WHOLE[damage](data)
  np.testing.assert_array_equal(decode(damaged), decode(data))
  np.testing.assert_array_equal(whole(damaged, size=8), whole(data, size=8))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("damage", TRUNCATED)
def test_what_lacks_pixels_is_refused(kind, damage):
  data = TRUNCATED[damage](a_jpeg(kind))
  for read in (decode, functools.partial(whole, size=8)):
    with pytest.raises(images.BadImage):
      read(data)


def test_a_progressive_jpeg_that_lacks_its_last_scans_is_refused():
  data = encodings()["progressive"]
  with pytest.raises(images.BadImage, match="truncated"):
    decode(data[: data.rindex(b"\xff\xda")])


def test_pixels_that_the_decoder_mended_are_those_of_other_readers():
  data = a_jpeg("restarts")
  at = data.index(b"\xff\xd1")
  data = data[:at] + data[at + 2 :]
  wanted = np.asarray(Image.open(io.BytesIO(data)))
  np.testing.assert_array_equal(decode(data), wanted)
  assert see(data, training=True).shape == (16, 16, 3)
