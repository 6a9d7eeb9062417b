"""Damaged, truncated, foreign, oversized and slow files are refused."""

import struct
import zlib

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st
from PIL import Image

from tests.data.pictures import chunk, decode, encodings, picture, png16, saved, see
from tests.data.tiff import tiff
from vit_jax.data import images, pillow

BOTH = pytest.mark.parametrize("training", [False, True])


@pytest.mark.parametrize("kind", encodings())
@BOTH
def test_truncated_files_are_refused(kind, training):
  data = encodings()[kind]
  for kept in (0.01, 0.3, 0.7, 0.95):
    with pytest.raises(images.BadImage):
      see(data[: int(kept * len(data))], training=training)


@pytest.mark.parametrize("cut", [3, 4, 10])
def test_a_jpeg_short_of_a_few_bytes_is_refused_whatever_the_crop(cut):
  data = encodings()["jpeg"]
  for seed in range(30):
    with pytest.raises(images.BadImage, match="truncated"):
      see(data[:-cut], training=True, seed=seed)


@pytest.mark.parametrize(
  "data",
  [
    *(b"", b"\xff\xd8\xff", b"hello", b"GIF89a" + bytes(50), b"\x89PNG\r\n\x1a\n" + bytes(40)),
    *(saved(picture(), "ICO"), saved(picture(), "TGA")),
  ],
)
@BOTH
def test_rubbish_and_other_formats_are_refused(data, training):
  with pytest.raises(images.BadImage, match="Not a JPEG, PNG, WebP, GIF"):
    see(data, training=training)


@pytest.mark.parametrize("kind", encodings())
@BOTH
def test_pixel_cap(kind, training):
  data = encodings()[kind]
  see(data, training=training, max_pixels=64 * 80)
  with pytest.raises(images.BadImage, match="80 x 64 pixels are more than the 5119"):
    see(data, training=training, max_pixels=64 * 80 - 1)


def bombs() -> dict[str, bytes]:
  """Headers that claim 900 million pixels, and files of a few bytes."""
  png = bytearray(png16(np.zeros((2, 2), np.uint16)))
  struct.pack_into(">II", png, 16, 30_000, 30_000)
  struct.pack_into(">I", png, 29, zlib.crc32(png[12:29]))
  header = (b"BM", 54, 0, 0, 54, 40, 30_000, 30_000, 1, 24, *[0] * 6)
  return {
    "png": bytes(png),
    "tiff": tiff(picture()[..., 0], t256=30_000, t257=30_000),
    "bmp": struct.pack("<2sIHHIIiiHHIIiiII", *header),
    "ppm": b"P6 30000 30000 255\n",
  }


@pytest.mark.parametrize("kind", bombs())
def test_the_pixel_cap_holds_before_anything_is_decoded(kind):
  with pytest.raises(images.BadImage, match="30000 x 30000 pixels are more than the 1000000"):
    decode(bombs()[kind])


@pytest.mark.parametrize("between", [b"", b"\0", b"x", b"\xff", b"\xff\x01", b"\xff\xd0"])
@pytest.mark.parametrize("mode", ["RGB", "CMYK"])
@BOTH
def test_a_jpeg_of_many_scans_is_refused_before_it_is_decoded(mode, between, training):
  """Each takes the time of the whole image; the decoder skips bytes between segments."""
  data = saved(Image.fromarray(picture()).convert(mode), "JPEG", progressive=True)
  last = data.rindex(b"\xff\xda")
  many = data[:last] + (between + data[last:-2]) * 501 + data[-2:]
  with pytest.raises(images.BadImage, match="more than 500 scans"):
    see(many, training=training)


def test_the_same_bytes_outside_of_scans_do_not_count():
  data = encodings()["progressive"]
  comment = b"\xff\xfe\x10\x02" + b"\xff\xda" * 2048
  more = data[:2] + comment + data[2:] + b"\xff\xda" * 1000  # such as a video behind the image
  np.testing.assert_array_equal(decode(more), decode(data))


def slow_png() -> bytes:
  data = encodings()["png"]
  profile = chunk(b"iCCP", b"p\0\0" + zlib.compress(bytes(10**6), 9))
  return data[:33] + profile * 1000 + data[33:]


def slow_gif() -> bytes:
  data = saved(Image.new("P", (4, 4)), "GIF")
  at = 13 + (3 << (data[10] & 7) + 1)
  return data[:at] + b"!\xfe" + b"\x01x" * 2**19 + b"\0" + data[at:]


def slow_tiff() -> bytes:
  return tiff(np.zeros((2, 2), np.uint8), t273=[8] * (2**20 + 1))


@pytest.mark.parametrize(
  ("make", "why"),
  [(slow_png, "over 1,000 chunks"), (slow_gif, "Not a"), (slow_tiff, "more than 1,048,576")],
)
def test_what_takes_long_without_being_pixels_is_refused(monkeypatch, make, why):
  data = make()
  monkeypatch.setattr(pillow, "_as_rgb8", lambda *_: pytest.fail("it is decoded"))
  with pytest.raises(images.BadImage, match=why):
    decode(data)


@hypothesis.given(st.data())
@hypothesis.settings(max_examples=300)
def test_damaged_files_give_an_image_or_bad_image(data):
  kind = data.draw(st.sampled_from(sorted(encodings())))
  damaged = bytearray(encodings()[kind])
  for _ in range(data.draw(st.integers(1, 5))):
    damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
  for training in (False, True):
    try:
      out = see(bytes(damaged), training=training)
    except images.BadImage:
      continue
    assert out.shape == (16, 16, 3)
