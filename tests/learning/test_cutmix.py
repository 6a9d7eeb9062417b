"""CutMix against NumPy; broken images affect no others; with MixUp, one of the two in each step."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.learning import steps
from vit_jax.config import ConfigError
from vit_jax.learning import mixing
from vit_jax.learning.classification import Settings

SIZE, SIDE, CLASSES = 12, 16, 5
batch = functools.partial(steps.batch, size=SIZE, side=SIDE, broken=(2, 3))


def keys(count=200):
  return [jax.random.fold_in(jax.random.key(1), step) for step in range(count)]


@pytest.mark.parametrize("broken", [(), (2, 3, 11)])
def test_each_image_keeps_its_share_and_has_the_rest_of_its_partner(broken):
  one = batch(broken)
  paired = jax.jit(mixing.cutmix, static_argnums=2)
  for key in keys(20):
    cut = jax.device_get(paired(one, key, 1.0))
    inside = np.array(mixing.rectangle(jax.random.fold_in(key, 2**32 - 2), (SIDE, SIDE), 1.0))
    for i, image in enumerate(cut["image"]):
      partner = SIZE - 1 - i
      taken = inside & (one["mask"][partner] > 0)
      wanted = np.where(taken[..., None], one["image"][partner], one["image"][i])
      np.testing.assert_array_equal(image, wanted)
      assert cut["share"][i] == pytest.approx(1 - np.count_nonzero(taken) / SIDE**2, rel=1e-6)
      assert cut["partner_labels"][i] == one["labels"][partner]
    np.testing.assert_array_equal(cut["labels"], one["labels"])


def test_the_rectangle_is_that_of_algorithm_a1():
  sides = []
  for key in keys():
    of_share, of_centre = jax.random.split(key)
    share = float(jax.random.beta(of_share, 1.0, 1.0))
    row, column = jax.random.randint(of_centre, (2,), 0, SIDE).tolist()
    half = int(SIDE * np.sqrt(1 - share)) // 2
    wanted = np.zeros((SIDE, SIDE), bool)
    wanted[max(row - half, 0) : row + half, max(column - half, 0) : column + half] = True
    np.testing.assert_array_equal(mixing.rectangle(key, (SIDE, SIDE), 1.0), wanted)
    sides.append(2 * half)
  # With alpha 1 the share is uniform, so the side is 2/3 of the image's on average.
  assert abs(np.mean(sides) / SIDE - 2 / 3) < 0.1
  assert (min(sides), max(sides)) < (4, SIDE + 1)


def test_the_rectangle_has_the_proportions_of_the_image():
  size = (10, 40)
  largest = np.zeros(2, int)
  for key in keys(40):
    share = float(jax.random.beta(jax.random.split(key)[0], 1.0, 1.0))
    inside = np.array(mixing.rectangle(key, size, 1.0))
    assert inside.shape == size
    found = [np.count_nonzero(inside.any(axis=axis)) for axis in (1, 0)]
    most = [2 * (int(side * np.sqrt(1 - share)) // 2) for side in size]
    assert np.all(np.array(found) <= most)
    largest = np.maximum(largest, found)
  assert np.all(largest >= np.array(size) * 0.7)


def test_the_loss_is_that_of_both_labels_by_their_areas():
  cut = mixing.cutmix(batch(), keys(1)[0], 1.0)
  losses = np.arange(1.0, CLASSES + 1)
  blended = mixing.blend(lambda labels: jnp.array(losses)[labels], cut)
  share, partner = np.float64(cut["share"]), np.array(cut["labels"])[::-1]
  wanted = share * losses[cut["labels"]] + (1 - share) * losses[partner]
  np.testing.assert_allclose(blended, wanted, rtol=1e-6)
  np.testing.assert_array_equal(mixing.mixed_images(cut), cut["image"])  # not blended once more


def test_with_mixup_each_step_does_one_of_the_two():
  one, cuts = batch(broken=()), 0
  both = jax.jit(lambda key: mixing.mixup_or_cutmix(one, key, mixup_alpha=0.8, cutmix_alpha=1.0))
  for key in keys(60):
    drawn = both(key)
    cut, blended = mixing.cutmix(one, key, 1.0), mixing.mixup(one, key, 0.8)
    of_cut = np.allclose(drawn["share"], cut["share"], rtol=1e-6)
    chosen = cut if of_cut else blended
    np.testing.assert_allclose(drawn["share"], chosen["share"], rtol=1e-5)
    np.testing.assert_allclose(
      mixing.mixed_images(drawn), mixing.mixed_images(chosen), rtol=1e-5, atol=1e-4
    )
    cuts += of_cut
  assert 20 < cuts < 40


@pytest.mark.parametrize("alpha", [0.0, 0.2])
def test_without_it_nothing_changes(alpha):
  one, key = batch(), keys(1)[0]
  drawn = mixing.mixup_or_cutmix(one, key, mixup_alpha=alpha, cutmix_alpha=0.0)
  wanted = mixing.mixup(one, key, alpha)
  assert drawn.keys() == wanted.keys()
  for name, value in wanted.items():
    np.testing.assert_array_equal(drawn[name], value)


def test_images_of_several_labels_are_refused():
  Settings(cutmix=1.0).check_labels("photos", multi_label=False)
  Settings(mixup=1.0).check_labels("photos", multi_label=True)
  with pytest.raises(ConfigError, match=r"cutmix=1 is for images with one label each"):
    Settings(cutmix=1.0).check_labels("photos", multi_label=True)
