"""Images of other channels than RGB: how they are decoded, cropped and found."""

import io

import numpy as np
import pytest
from PIL import Image

from vit_jax.data import image_files, images
from vit_jax.data.images import BadImage, as_channels

CAP = 10**6
RNG = np.random.default_rng(0)
RGBA = RNG.integers(0, 256, (9, 12, 4), dtype=np.uint8)
RGB = RGBA[..., :3]


def encoded(pixels, kind="PNG", mode=None):
  stream = io.BytesIO()
  if mode:
    Image.frombytes(mode, pixels.shape[1::-1], pixels.tobytes()).save(stream, kind)
  else:
    Image.fromarray(pixels).save(stream, kind)
  return stream.getvalue()


def npy(array):
  stream = io.BytesIO()
  np.save(stream, array)
  return stream.getvalue()


@pytest.mark.parametrize(
  ("image", "channels", "expected"),
  [
    (encoded(RGB[..., 0]), 1, RGB[..., :1]),
    (encoded(RGB), 1, np.asarray(Image.fromarray(RGB).convert("L"))[..., None]),
    (encoded(RGBA), 4, RGBA),
    (encoded(RGB), 4, np.pad(RGB, ((0, 0), (0, 0), (0, 1)), constant_values=255)),
    (encoded(RGBA, "TIFF"), 4, RGBA),
    (npy(RGBA), 4, RGBA),
    (RGB[..., 0], 4, np.dstack([RGB[..., 0]] * 3 + [np.full((9, 12), 255, np.uint8)])),
    (npy(np.tile(RGB, 5)), 15, np.tile(RGB, 5)),
    (npy(RGB), 3, RGB),
    (RGBA[..., :2], 2, RGBA[..., :2]),
  ],
)
def test_the_pixels_of_an_image(image, channels, expected):
  np.testing.assert_array_equal(as_channels(image, channels, max_pixels=CAP), expected)


@pytest.mark.parametrize(
  ("image", "channels", "message"),
  [
    (encoded(RGB), 13, r"no \.npy file, and images of 13 channels .* uint8 \(H, W, 13\)"),
    (encoded(RGBA, "TIFF", "RGBX"), 4, "a channel beside RGB that is not transparency"),
    (npy(RGB), 13, r"uint8 \(9, 12, 3\); they must be"),
    (npy(RGBA), 3, r"uint8 \(9, 12, 4\); they must be"),
    (npy(RGB.astype(np.uint16)), 3, "npy file of uint16; save uint8"),
    (npy(np.array([None])), 3, "npy file of object"),
    (npy(RGB)[:-1], 3, "cannot be read"),
    (npy(RGB)[:20], 3, "cannot be read"),
    (npy(np.zeros((2000, 2000, 1), np.uint8)), 1, "more than the 1000000 that are allowed"),
  ],
)
def test_what_is_refused(image, channels, message):
  with pytest.raises(BadImage, match=message):
    as_channels(image, channels, max_pixels=CAP)


@pytest.mark.parametrize("channels", [1, 2, 4, 13])
@pytest.mark.parametrize("resampling", ["bilinear", "torchvision_bicubic"])
def test_every_channel_is_cropped_as_a_grey_image_is(channels, resampling):
  """So nothing depends on their number, not even where the fourth is transparency."""
  pixels = RNG.integers(0, 256, (40, 30, channels), dtype=np.uint8)
  common = dict(size=16, max_pixels=CAP, resampling=resampling)
  drawn = common | dict(flip=True)
  for function, options in (
    (images.train_image, drawn | dict(area=(0.3, 1), aspect=(0.5, 2))),
    (images.train_square, drawn | dict(resize=20)),
    (images.train_padded, drawn | dict(pad=3)),
    (images.evaluation_cut, common | dict(resize=20)),
  ):

    def cut(image, channels, function=function, options=options):
      if "flip" in options:
        options = options | dict(rng=np.random.default_rng(1))
      return function(image, channels=channels, **options)

    made = cut(pixels, channels)
    assert made.pixels.shape == (16, 16, channels)
    for i in range(channels):
      grey = np.repeat(pixels[..., i : i + 1], 3, axis=2)
      np.testing.assert_array_equal(made.pixels[..., i], cut(grey, 3).pixels[..., 0])


def test_arrays_are_the_images_of_a_folder_without_others(tmp_path):
  (tmp_path / "a.npy").write_bytes(npy(RGBA))
  assert image_files.find(tmp_path).names == ["a.npy"]
  (tmp_path / "a.png").write_bytes(encoded(RGB))
  found = image_files.find(tmp_path)
  assert found.names == ["a.png"]
  assert found.left_out.counts() == {"with the suffix '.npy'": 1}
