"""Damaged, truncated, foreign and oversized files are refused."""

import struct
import zlib

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st
from PIL import Image

from tests.data.pictures import decode, encodings, picture, png16, saved, see
from vit_jax.data import images


@pytest.mark.parametrize("kind", encodings())
@pytest.mark.parametrize("kept", [0.01, 0.3, 0.7, 0.95])
@pytest.mark.parametrize("training", [False, True])
def test_truncated_files_are_refused(kind, kept, training):
  data = encodings()[kind]
  with pytest.raises(images.BadImage):
    see(data[: int(kept * len(data))], training=training)


@pytest.mark.parametrize("cut", [1, 2, 3, 10])
def test_a_jpeg_short_of_a_few_bytes_is_refused_whatever_the_crop(cut):
  data = encodings()["jpeg"]
  for seed in range(30):
    with pytest.raises(images.BadImage, match="truncated"):
      see(data[:-cut], training=True, seed=seed)


@pytest.mark.parametrize(
  "data", [b"", b"\xff\xd8\xff", b"hello", b"GIF89a" + bytes(50), b"\x89PNG\r\n\x1a\n" + bytes(40)]
)
@pytest.mark.parametrize("training", [False, True])
def test_rubbish_is_refused(data, training):
  with pytest.raises(images.BadImage):
    see(data, training=training)


@pytest.mark.parametrize("file_format", ["GIF", "ICO", "TGA"])
def test_other_formats_are_refused(file_format):
  with pytest.raises(images.BadImage, match="JPEG, PNG, WebP, TIFF, BMP or PPM"):
    decode(saved(Image.fromarray(picture()), file_format))


@pytest.mark.parametrize("kind", encodings())
@pytest.mark.parametrize("training", [False, True])
def test_pixel_cap(kind, training):
  data = encodings()[kind]
  see(data, training=training, max_pixels=64 * 80)
  with pytest.raises(images.BadImage, match="80 x 64 pixels are more than the 5119"):
    see(data, training=training, max_pixels=64 * 80 - 1)


def test_pixel_cap_is_checked_before_decoding():
  """A decompression bomb: the header claims 3.6 Gpixel, but the file has 30 bytes of pixels."""
  bomb = bytearray(png16(np.zeros((2, 2), np.uint16)))
  struct.pack_into(">II", bomb, 16, 60_000, 60_000)
  struct.pack_into(">I", bomb, 29, zlib.crc32(bomb[12:29]))
  with pytest.raises(images.BadImage):
    decode(bytes(bomb))


@hypothesis.given(st.data())
@hypothesis.settings(deadline=None, max_examples=200)
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
