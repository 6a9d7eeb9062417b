"""Crops of timm, and the operations of its RandAugment, in their order and strengths, to the pixel.

Needs torch and timm (the extra `agreement`); skipped, with this reason, where they are not there.
"""

import importlib
import random

import numpy as np
import pytest
from PIL import Image

from vit_jax.data import crops
from vit_jax.data.augmentation import rand_augment_timm

SIDE = 48


@pytest.fixture(scope="module")
def peer():
  """timm's operations."""
  importlib.import_module("tests.agreement.timm_models")
  return importlib.import_module("timm.data.auto_augment")


@pytest.mark.parametrize("magnitude", [0.0, 3.3, 9.0, 10.0])
@pytest.mark.parametrize("sign", [-1, 1])
def test_every_operation_is_timms(peer, magnitude, sign, monkeypatch):
  monkeypatch.setattr(random, "random", lambda: 0.75 if sign < 0 else 0.25)  # over 1/2: negative
  pixels = np.random.default_rng(0).integers(0, 256, (SIDE, SIDE, 3), np.uint8)
  ours = rand_augment_timm.operations(magnitude, sign, SIDE)
  hparams = dict(img_mean=(128,) * 3, interpolation=Image.Resampling.BICUBIC)
  transform = peer.rand_augment_transform("rand-m9-mstd0.5-inc1", hparams)
  names = [op.name for op in transform.ops]
  assert len(ours) == len(names) == 15
  for name, operation in zip(names, ours, strict=True):
    level = peer.LEVEL_TO_ARG[name]
    theirs = peer.NAME_TO_OP[name](
      Image.fromarray(pixels),
      *(level(magnitude, {}) if level else ()),
      fillcolor=(128,) * 3,
      resample=Image.Resampling.BICUBIC,
    )
    np.testing.assert_array_equal(operation(pixels), np.asarray(theirs), err_msg=name)


def test_the_settings_are_those_of_rand_m9_mstd05_inc1(peer):
  ours = rand_augment_timm.RandAugmentTimm()
  theirs = peer.rand_augment_transform("rand-m9-mstd0.5-inc1", {})
  assert theirs.num_layers == ours.layers
  for op in theirs.ops:
    wanted = (ours.magnitude, ours.deviation, ours.probability)
    assert (op.magnitude, op.magnitude_std, op.prob) == wanted


@pytest.mark.parametrize("size", [(375, 500), (40, 30), (9, 200), (200, 9), (6, 7)])
def test_resized_crops_are_timms(peer, size, monkeypatch):
  """timm's rule with our draws."""
  transforms = importlib.import_module("timm.data.transforms")
  monkeypatch.setattr(transforms.F, "get_image_size", lambda image: image.size, raising=False)
  drawn = np.random.default_rng(3)
  monkeypatch.setattr(random, "uniform", lambda low, high: low + (high - low) * drawn.random())
  monkeypatch.setattr(
    random, "randint", lambda low, high: low + int((high - low + 1) * drawn.random())
  )
  area, aspect = (0.08, 1.0), (3 / 4, 4 / 3)
  (height, width), ours = size, np.random.default_rng(3)
  image = Image.new("RGB", (width, height))
  for _ in range(300):
    theirs = transforms.RandomResizedCropAndInterpolation.get_params(image, area, aspect)
    assert (
      crops.random_resized(ours, height=height, width=width, area=area, aspect=aspect) == theirs
    )
