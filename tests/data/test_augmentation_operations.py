"""Operations against Pillow, to the pixel, and against the published formulas in float64."""

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st
from PIL import Image, ImageEnhance, ImageFilter, ImageOps

from vit_jax.data.augmentation import operations as o

GREY = (128, 128, 128)
AFFINE = Image.Transform.AFFINE
FACTORS = st.floats(0.0, 6.0, width=32)
MOVES = st.floats(-1.5, 1.5)
RESAMPLE = st.sampled_from((o.NEAREST, o.BICUBIC))


def pictures(seed, height, width, kind):
  """Noise, noise of a few levels, a flat image, or a gradient."""
  rng = np.random.default_rng(seed)
  low, high = sorted(rng.integers(0, 256, 2).tolist())
  if kind == "gradient":
    ramp = np.linspace(low, high, height * width * 3).reshape(height, width, 3)
    return ramp.astype(np.uint8)
  top = {"noise": 256, "few": min(low + 3, 256), "flat": low + 1}[kind]
  return rng.integers(0 if kind == "noise" else low, top, (height, width, 3), np.uint8)


IMAGES = st.builds(
  pictures,
  seed=st.integers(0, 10**6),
  height=st.integers(1, 40),
  width=st.integers(1, 40),
  kind=st.sampled_from(("noise", "few", "flat", "gradient")),
)


def moved(image, matrix, resample):
  return image.transform(image.size, AFFINE, matrix, resample=resample, fillcolor=GREY)


# The name of an operation: (how its arguments are drawn, Pillow's operation).
PILLOW = {
  "invert": ({}, ImageOps.invert),
  "equalize": ({}, ImageOps.equalize),
  "auto_contrast": ({}, ImageOps.autocontrast),
  "grey": ({}, lambda image: ImageOps.grayscale(image).convert("RGB")),
  "solarize": ({"threshold": st.integers(0, 255)}, ImageOps.solarize),
  "posterize": ({"bits": st.integers(1, 8)}, ImageOps.posterize),
  "color": ({"factor": FACTORS}, lambda x, factor: ImageEnhance.Color(x).enhance(factor)),
  "contrast": ({"factor": FACTORS}, lambda x, factor: ImageEnhance.Contrast(x).enhance(factor)),
  "brightness": ({"factor": FACTORS}, lambda x, factor: ImageEnhance.Brightness(x).enhance(factor)),
  "sharpness": ({"factor": FACTORS}, lambda x, factor: ImageEnhance.Sharpness(x).enhance(factor)),
  "blur": (
    {"radius": st.floats(0.1, 2)},
    lambda x, radius: x.filter(ImageFilter.GaussianBlur(radius)),
  ),
  "rotate": (
    {"degrees": st.floats(-200, 200), "resample": RESAMPLE},
    lambda x, degrees, resample: x.rotate(degrees, resample=resample, fillcolor=GREY),
  ),
  "shear_x": (
    {"shift": MOVES, "resample": RESAMPLE},
    lambda x, shift, resample: moved(x, (1, shift, 0, 0, 1, 0), resample),
  ),
  "shear_y": (
    {"shift": MOVES, "resample": RESAMPLE},
    lambda x, shift, resample: moved(x, (1, 0, 0, shift, 1, 0), resample),
  ),
  "translate_x": (
    {"distance": st.floats(-50, 50), "resample": RESAMPLE},
    lambda x, distance, resample: moved(x, (1, 0, distance, 0, 1, 0), resample),
  ),
  "translate_y": (
    {"distance": st.floats(-50, 50), "resample": RESAMPLE},
    lambda x, distance, resample: moved(x, (1, 0, 0, 0, 1, distance), resample),
  ),
}  # fmt: skip


@pytest.mark.parametrize("name", PILLOW)
@hypothesis.given(data=st.data())
@hypothesis.settings(max_examples=40)
def test_every_pixel_is_pillows(name, data):
  arguments, pillow = PILLOW[name]
  pixels = data.draw(IMAGES)
  drawn = {key: data.draw(strategy) for key, strategy in arguments.items()}
  before = pixels.copy()
  result = getattr(o, name)(pixels, **drawn)
  assert result.dtype == np.uint8
  np.testing.assert_array_equal(result, np.asarray(pillow(Image.fromarray(pixels), **drawn)))
  np.testing.assert_array_equal(pixels, before)


PIXELS = pictures(0, 31, 17, "noise")


@pytest.mark.parametrize("threshold", [256, 384, 768])
def test_solarize_does_not_overflow(threshold):
  """256 as 8 bits is 0, which would invert the whole image."""
  np.testing.assert_array_equal(o.solarize(PIXELS, threshold), PIXELS)


@pytest.mark.parametrize("addition", [0, 77, 110, 165, 330])
def test_solarize_add_against_its_formula(addition):
  wide = PIXELS.astype(np.int64)
  wanted = np.where(wide < 128, np.clip(wide + addition, 0, 255), wide)
  np.testing.assert_array_equal(o.solarize_add(PIXELS, addition), wanted)
  assert not o.posterize(PIXELS, 0).any()


def test_movements_go_where_they_say():
  pixels, square = pictures(1, 12, 9, "noise"), pictures(1, 10, 10, "noise")
  np.testing.assert_array_equal(o.translate_x(pixels, 3)[:, :-3], pixels[:, 3:])
  np.testing.assert_array_equal(o.translate_y(pixels, -3)[3:], pixels[:-3])
  assert (o.translate_x(pixels, 3)[:, -3:] == 128).all()
  np.testing.assert_array_equal(o.rotate(square, 90), np.rot90(square))
  sheared = o.shear_x(pixels, 1.0)  # row r is moved by about r
  np.testing.assert_array_equal(sheared[5, :3], pixels[5, 6:])


def test_a_cut_square_stays_inside_and_has_twice_its_reach():
  pixels = np.zeros((20, 20, 3), np.uint8)
  inside = np.argwhere(o.cutout(pixels, 10, 8, 3)[..., 0])
  assert inside.min(axis=0).tolist() == [7, 5]
  assert inside.max(axis=0).tolist() == [12, 10]
  corner = np.argwhere(o.cutout(pixels, 0, 19, 3)[..., 0])
  assert (corner.min(axis=0).tolist(), corner.max(axis=0).tolist()) == ([0, 16], [2, 19])
  assert not o.cutout(pixels, 5, 5, 0).any()
  assert not pixels.any()


def test_a_patch_replaces_its_pixels_alone():
  patch = np.full((2, 3, 3), 7, np.uint8)
  out = o.replace(PIXELS, 4, 5, patch)
  assert (out[4:6, 5:8] == 7).all()
  out[4:6, 5:8] = PIXELS[4:6, 5:8]
  np.testing.assert_array_equal(out, PIXELS)
