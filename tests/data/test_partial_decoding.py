"""Only the rows of a JPEG that a crop needs are decoded; they equal those of the whole image."""

import hypothesis
import numpy as np
import pytest
import simplejpeg
from hypothesis import strategies as st
from PIL import Image

from tests.data.pictures import picture, saved, whole
from vit_jax.data import jpeg


@hypothesis.given(
  height=st.integers(1, 120),
  width=st.integers(1, 120),
  share=st.floats(0, 1),
  factor=st.sampled_from((1, 2, 4, 8)),
  layout=st.sampled_from(("420", "422", "444", "440", "411", "Gray")),
)
@hypothesis.settings(max_examples=300)
def test_partial_rows_equal_those_of_the_whole(height, width, share, factor, layout):
  pixels = picture(height, width)
  noise = np.random.default_rng(0).integers(0, 60, pixels.shape)
  pixels = np.clip(pixels + noise, 0, 255).astype(np.uint8)
  grey = layout == "Gray"
  data = simplejpeg.encode_jpeg(
    np.ascontiguousarray(pixels[..., :1]) if grey else pixels,
    colorspace="GRAY" if grey else "RGB",
    colorsubsampling=layout,
  )
  end = 1 + int(share * (height - 1))
  # Training reduces only crops of at least a few pixels.
  hypothesis.assume(factor == 1 or min(width, end) >= 4 * factor)
  part = jpeg.decode_rows(data, height=height, width=width, end=end, factor=factor)
  whole = simplejpeg.decode_jpeg(
    data,
    fastupsample=True,
    min_height=-(-height // factor),
    min_width=-(-width // factor),
    min_factor=factor,
  )
  rows = -(-end // factor)
  np.testing.assert_array_equal(part[:rows], whole[:rows])
  assert part.shape[1] == whole.shape[1]


def noisy_jpeg(**options) -> bytes:
  pixels = np.random.default_rng(0).integers(0, 256, (128, 128, 3), dtype=np.uint8)
  return saved(Image.fromarray(pixels), "JPEG", **options)


def count_decodings(monkeypatch) -> list[tuple[int, int]]:
  """A list that records the rows and the reduction of each later decoding."""
  seen, decode_jpeg = [], simplejpeg.decode_jpeg

  def counted(data, **options):
    seen.append((simplejpeg.decode_jpeg_header(data)[0], options["min_factor"]))
    return decode_jpeg(data, **options)

  monkeypatch.setattr(simplejpeg, "decode_jpeg", counted)
  return seen


@pytest.mark.parametrize(("size", "factor"), [(201, 1), (200, 2), (100, 4), (10, 8)])
def test_a_crop_is_decoded_as_small_as_the_result_allows(monkeypatch, size, factor):
  data = simplejpeg.encode_jpeg(picture(400, 600))
  seen = count_decodings(monkeypatch)
  whole(data, size=size)
  assert [reduced for _, reduced in seen] == [factor]


def test_rows_below_the_crop_are_not_decoded(monkeypatch):
  seen = count_decodings(monkeypatch)
  jpeg.decode_rows(noisy_jpeg(), height=128, width=128, end=40, factor=1)
  assert [rows for rows, _ in seen] == [40]


@pytest.mark.parametrize("options", [{"progressive": True}, {"restart_marker_blocks": 4}])
def test_files_that_cannot_be_cut_are_decoded_whole_at_once(monkeypatch, options):
  data = noisy_jpeg(**options)
  intact = simplejpeg.decode_jpeg(data, fastupsample=True)
  seen = count_decodings(monkeypatch)
  part = jpeg.decode_rows(data, height=128, width=128, end=40, factor=1)
  assert [rows for rows, _ in seen] == [128]
  np.testing.assert_array_equal(part, intact)


def test_damage_is_found_above_the_end_and_does_no_harm_below():
  data = noisy_jpeg(quality=90)
  intact = simplejpeg.decode_jpeg(data, fastupsample=True)
  at = len(data) * 9 // 10
  part = jpeg.decode_rows(
    data[:at] + bytes(20) + data[at + 20 :], height=128, width=128, end=40, factor=1
  )
  np.testing.assert_array_equal(part[:40], intact[:40])
  at = len(data) // 5
  data = data[:at] + b"\xff\xc4\x00\x03" + data[at + 4 :]  # a marker amid the pixels
  with pytest.raises(jpeg.BadImage):
    jpeg.decode_rows(data, height=128, width=128, end=64, factor=1)
