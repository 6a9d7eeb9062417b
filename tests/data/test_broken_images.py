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


@pytest.mark.parametrize("kind", encodings())
@BOTH
def test_pixel_cap(kind, training):
  data = encodings()[kind]
  see(data, training=training, max_pixels=64 * 80)
  with pytest.raises(images.BadImage, match="80 x 64 pixels are more than the 5119"):
    see(data, training=training, max_pixels=64 * 80 - 1)


def bomb_png() -> bytes:
  png = bytearray(png16(np.zeros((2, 2), np.uint16)))
  struct.pack_into(">II", png, 16, 30_000, 30_000)
  struct.pack_into(">I", png, 29, zlib.crc32(png[12:29]))
  return bytes(png)


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


GREY = picture()[..., 0]
WIDE = picture().astype(np.uint16) * 257
BMP = (b"BM", 54, 0, 0, 54, 40, 30_000, 30_000, 1, 24, *[0] * 6)
FLOATS = [b"Pf\n16 16\n%s\n" % scale for scale in (b"-1.0", b"-255")]
RAMPS = [np.linspace(0, white, 256).astype("<f4").tobytes() for white in (1, 255, 65535)]
RUBBISH = [b"", b"\xff\xd8\xff", b"hello", b"GIF89a" + bytes(50), b"\x89PNG\r\n\x1a\n" + bytes(40)]
# By what the message says: files that are refused before anything is decoded. Headers that claim
# 900 million pixels, other formats, and what would be read as something else.
REFUSED = {
  "Not a JPEG, PNG, WebP, GIF": [*RUBBISH, saved(picture(), "ICO"), saved(picture(), "TGA")],
  "Not a": [
    slow_gif(),
    tiff(GREY, rows=5, t273=8, deflate=True),
  ],
  r"TIFF that is damaged, or whose bands, .*numpy\.save as uint8 .*config\.model\.channels": [
    tiff(np.repeat(GREY[..., None], 13, -1), photometric=1),
    tiff(np.repeat(GREY[..., None], 4, -1), photometric=1),
    tiff(WIDE[..., :2]),
    tiff(picture().astype(np.float32)),
    tiff(GREY.astype(np.float64)),
  ],
  "30000 x 30000 pixels are more than the 1000000": [
    bomb_png(),
    tiff(GREY, t256=30_000, t257=30_000),
    struct.pack("<2sIHHIIiiHHIIiiII", *BMP),
    b"P6 30000 30000 255\n",
  ],
  "over 1,000 chunks": [slow_png()],
  "more than 1,048,576": [slow_tiff()],
  "fractions, signed or of 32 bits": [
    tiff(GREY.astype(np.float32) / 255),
    tiff(GREY.astype(np.int16) * 100),
    tiff((GREY // 2).astype(np.int8)),
    tiff(GREY.astype(np.uint32) * 2**24),
  ],
  "fractions, signed or of 32 bits, so the value of white is unknown": [
    *(header + body for header in FLOATS for body in RAMPS),
    b"Pf\n16 16\n1.0\n" + np.linspace(0, 255, 256).astype(">f4").tobytes(),
  ],
  "tiles of 65536 x 65536 pixels": [tiff(GREY, tile=16, t322=2**16, t323=2**16)],
  "lacks some of its strips": [tiff(GREY, t257=1000), tiff(GREY, rows=5, t273=8)],
  "16-bit channels in separate planes": [tiff(WIDE, planar=True)],
  "8-bit channels in separate planes": [tiff(picture()[..., :2], planar=True, deflate=True)],
}


@pytest.mark.parametrize("message", REFUSED)
@BOTH
def test_what_is_no_image_of_certain_pixels_is_refused(monkeypatch, message, training):
  monkeypatch.setattr(pillow, "_as_rgb8", lambda *_: pytest.fail("it is decoded"))
  for data in REFUSED[message]:
    with pytest.raises(images.BadImage, match=message):
      see(data, training=training)


@pytest.mark.parametrize("mode", ["RGB", "CMYK"])
@BOTH
def test_a_jpeg_of_many_scans_is_refused_before_it_is_decoded(mode, training):
  """Each takes the time of the whole image; the decoder skips bytes between segments."""
  data = saved(Image.fromarray(picture()).convert(mode), "JPEG", progressive=True)
  last = data.rindex(b"\xff\xda")
  for between in (b"", b"\0", b"x", b"\xff", b"\xff\x01", b"\xff\xd0"):
    many = data[:last] + (between + data[last:-2]) * 501 + data[-2:]
    with pytest.raises(images.BadImage, match="more than 500 scans"):
      see(many, training=training)


def test_the_same_bytes_outside_of_scans_do_not_count():
  data = encodings()["progressive"]
  comment = b"\xff\xfe\x10\x02" + b"\xff\xda" * 2048
  more = data[:2] + comment + data[2:] + b"\xff\xda" * 1000  # such as a video behind the image
  np.testing.assert_array_equal(decode(more), decode(data))


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
