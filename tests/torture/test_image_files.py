"""Odd and damaged images: refused in a sentence, or read; sound ones as Pillow reads them."""

import functools
import io
import random
import time

import numpy as np
import pytest
from PIL import Image

from tests.data import natural
from tests.torture import damage
from vit_jax.data import images

CASES = (30, 30_000)
MAX_SECONDS = 5
MAX_PIXELS = 2**22
SIDE = 32
SIZES = ((1, 1), (1, 300), (300, 1), (3, 5), (64, 48), (97, 131), (257, 255))
# Format, mode and how it is written.
KINDS = (
  ("JPEG", "RGB", {"quality": 95}),
  ("JPEG", "RGB", {"quality": 95, "progressive": True}),
  ("JPEG", "RGB", {"quality": 95, "subsampling": 0, "restart_marker_blocks": 2}),
  ("JPEG", "L", {"quality": 95}),
  ("JPEG", "CMYK", {"quality": 95}),
  ("PNG", "RGB", {}),
  ("PNG", "L", {}),
  ("PNG", "1", {}),
  ("PNG", "P", {}),
  ("PNG", "LA", {}),
  ("PNG", "RGBA", {}),
  ("WEBP", "RGB", {"lossless": True}),
  ("WEBP", "RGBA", {"quality": 90}),
)


def cases(count: int):
  """(kind, size, damage or None, seed), of which every third is sound."""
  found = []
  for number in range(count):
    kind, size = KINDS[number % len(KINDS)], random.Random(number).choice(SIZES)
    harm = None if number % 3 == 0 else random.Random(number).choice(damage.KINDS)
    name = f"{number}-{kind[0]}-{kind[1]}-{size[0]}x{size[1]}-{harm.__name__ if harm else 'sound'}"
    found.append((name, (kind, size, harm, number)))
  return found


@pytest.fixture(scope="module")
def photograph():
  """A window of a real photograph, 300 pixels wide."""
  (window,) = natural.photographs(1, side=300, seed=0)
  return Image.fromarray(window)


def test_read_or_refused(case, photograph):
  (form, mode, options), size, harm, seed = case
  stream = io.BytesIO()
  photograph.resize(size).convert(mode).save(stream, form, **options)
  data = harm(stream.getvalue(), random.Random(seed)) if harm else stream.getvalue()
  began = time.process_time()
  pixels, crop, error = outcome(data, seed)
  assert time.process_time() - began < MAX_SECONDS
  assert error.isprintable(), error
  if error:
    assert harm, error
    return
  assert pixels.dtype == crop.dtype == np.uint8
  assert pixels.ndim == 3
  assert crop.shape == (SIDE, SIDE, 3)
  if not harm:
    assert pixels.shape == (size[1], size[0], 3)
    assert np.abs(pixels.astype(int) - reference(data)).mean() < 1


def outcome(data: bytes, seed: int):
  """The pixels, a training crop and "", or None, None and why they cannot be had."""
  crop = functools.partial(
    images.train_image, size=SIDE, area=(0.05, 1.0), aspect=(3 / 4, 4 / 3), flip=True
  )
  try:
    pixels = images.decode(data, max_pixels=MAX_PIXELS)
    cut = crop(data, rng=np.random.default_rng(seed), max_pixels=MAX_PIXELS)
    return pixels, cut.pixels, ""
  except images.BadImage as error:
    return None, None, str(error)


def reference(data: bytes) -> np.ndarray:
  """The pixels as Pillow has them, transparency laid on white."""
  image = Image.open(io.BytesIO(data))
  if image.has_transparency_data:
    image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image.convert("RGBA"))
  return np.asarray(image.convert("RGB")).astype(int)
