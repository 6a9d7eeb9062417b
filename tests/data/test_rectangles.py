"""Images of height x width pixels: crops, resizing and augmentation, compared with Pillow."""

import numpy as np
import pytest
from PIL import Image

from tests.data.pictures import CAP
from vit_jax.data import crops, images
from vit_jax.data.augmentation.rand_augment import RandAugment
from vit_jax.data.augmentation.rand_augment_timm import RandAugmentTimm
from vit_jax.data.augmentation.random_erasing import RandomErasing

SIZE = (24, 36)
COMMON = dict(size=SIZE, flip=True, max_pixels=CAP)


def noise(*shape):
  return np.random.default_rng(shape).integers(0, 256, (*shape, 3), np.uint8)


def pillow(pixels, height, width):
  return np.asarray(Image.fromarray(pixels).resize((width, height), Image.Resampling.BICUBIC))


# The image, and its size after timm's ResizeKeepRatio((26, 40)): h / r and w / r, rounded, where r
# is the smaller of h / 26 and w / 40.
@pytest.mark.parametrize(
  ("shape", "covering"),
  [((61, 47), (52, 40)), ((40, 150), (26, 98)), ((26, 40), (26, 40)), ((13, 21), (26, 42))],
)
def test_evaluation_as_timm(shape, covering):
  pixels = noise(*shape)
  how = dict(size=SIZE, resize=(26, 40), max_pixels=CAP, resampling="torchvision_bicubic")
  cut = images.evaluation_cut(pixels, **how)
  assert cut.grid == covering
  top, left = (round((whole - part) / 2) for whole, part in zip(covering, SIZE, strict=True))
  wanted = pillow(pixels, *covering)[top : top + SIZE[0], left : left + SIZE[1]]
  np.testing.assert_array_equal(cut.pixels, wanted)
  squeezed = images.evaluate_image(pixels, squeeze=True, **how)
  np.testing.assert_array_equal(squeezed, pillow(pixels, 26, 40)[1:25, 2:38])
  whole = images.evaluate_image(pixels, **how | dict(resize=0))
  np.testing.assert_array_equal(whole, pillow(pixels, *SIZE))


def test_a_resize_that_covers_one_side_alone_is_refused():
  with pytest.raises(ValueError, match=r"resize=\(24, 30\) is smaller .* size=\(24, 36\)"):
    images.evaluation_cut(noise(30, 30), size=SIZE, resize=(24, 30), max_pixels=CAP)


def made(kind, rng, pixels):
  if kind == "resized":
    return images.train_square(pixels, rng=rng, resize=(32, 40), **COMMON)
  if kind == "padded":
    return images.train_padded(pixels, rng=rng, pad=4, **COMMON)
  options = dict(area=(0.2, 1.0), aspect=(3 / 4, 4 / 3), draw=crops.RULES[kind])
  return images.train_image(pixels, rng=rng, **options, **COMMON)


@pytest.mark.parametrize("kind", ["inception", "random_resized", "resized", "padded"])
@pytest.mark.parametrize("shape", [(60, 47), (30, 90)])
def test_training_crops_and_the_masks_that_follow_them(kind, shape):
  """Rows and columns as values show where each pixel of a crop was taken."""
  places = np.stack(np.broadcast_arrays(*np.ogrid[: shape[0], : shape[1]]), axis=-1)
  pixels = np.concatenate([places, 0 * places[..., :1]], axis=-1).astype(np.uint8)
  reached = np.zeros(shape, bool)
  for seed in range(60):
    cut = made(kind, np.random.default_rng(seed), pixels)
    assert cut.pixels.shape == (*SIZE, 3)
    followed = crops.follow(places, cut)
    inner = (slice(4, -4), slice(4, -4))  # interpolation at edges, and mirrored pixels
    off = np.abs(followed.astype(float) - cut.pixels[..., :2])[inner]
    assert off.max() <= max(shape) / min(SIZE)  # at most a new pixel
    reached[followed[..., 0], followed[..., 1]] = True
  for axis, length in enumerate(shape):
    places = np.flatnonzero(reached.any(axis=1 - axis))
    assert places[0] <= 2
    assert places[-1] >= length - 3


def uncropped(image, rng):
  size = image.shape[:2]
  return crops.Cut(image, size, size, crops.Box(0, 0, *size))


@pytest.mark.parametrize("turned", [False, True])
def test_augmentation_moves_and_erases_along_both_sides(turned):
  size = SIZE[::-1] if turned else SIZE
  grey = np.full((*size, 3), 200, np.uint8)
  chain = [RandAugment(magnitude=30), RandAugmentTimm(probability=1), RandomErasing(probability=1)]
  changed = np.zeros(size, bool)
  for seed in range(80):
    rng = np.random.default_rng(seed)
    pixels = crops.augmented(grey, rng=rng, crop=uncropped, steps=chain).pixels
    assert pixels.shape == (*size, 3)
    erased = RandomErasing(probability=1.0).draw(rng, size)
    for operation in erased:
      changed |= (operation(grey) != grey).any(axis=-1)
  assert changed.any(axis=0).all()
  assert changed.any(axis=1).all()
