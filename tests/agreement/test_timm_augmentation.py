"""The operations of timm's RandAugment, in its order and at its strengths, to the pixel.

Needs torch and timm (the extra `agreement`); skipped, with this reason, where they are not there.
"""

import importlib
import random

import numpy as np
import pytest
from PIL import Image

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
