"""What steps draw: the published ranges; batches stay a function of seed and position."""

import collections
import functools
import hashlib
import types

import numpy as np
import pytest

from tests import resolved
from tests.data.numbered import assert_equal, jpegs, train
from vit_jax.config import ConfigError, Data, as_recipe, from_dict, recipe_file, to_dict
from vit_jax.data import batches
from vit_jax.data.augmentation import operations
from vit_jax.data.augmentation.color_jitter import ColorJitter
from vit_jax.data.augmentation.rand_augment import RandAugment
from vit_jax.data.augmentation.rand_augment_timm import RandAugmentTimm
from vit_jax.data.augmentation.random_erasing import RandomErasing
from vit_jax.data.augmentation.three_augment import ThreeAugment
from vit_jax.registry import AUGMENTATIONS

STEPS = tuple(AUGMENTATIONS[name]() for name in AUGMENTATIONS)
PUBLISHED = (
  *("auto_contrast", "equalize", "invert", "rotate", "posterize", "solarize", "color", "contrast"),
  *("brightness", "sharpness", "shear_x", "shear_y", "translate_x", "translate_y", "cutout"),
  "solarize_add",
)


def drawn(step, side=224, images=2000):
  """{operation: [its arguments, ...]} of many images, and how often nothing is done."""
  seen = collections.defaultdict(list)
  rng = np.random.default_rng(0)
  for _ in range(images):
    for operation in step.draw(rng, side):
      seen[operation.func.__name__].append(operation.keywords)
  return seen


def values(seen, name):
  """The different values of an operation's only argument, or of that which is not `resample`."""
  return sorted({next(iter(keywords.values())) for keywords in seen[name]})


def test_rand_augment_draws_16_operations_equally_often():
  seen = drawn(RandAugment(layers=2))
  assert {*seen} == {*PUBLISHED}
  counts = [len(each) for each in seen.values()]
  assert sum(counts) == 4000
  assert abs(np.array(counts) - 250).max() < 5 * np.sqrt(250)


# Arguments at magnitudes 0, 5, 10, 15 and 30, by hand from the published ranges; movements have
# both signs.
RANGES = {
  "rotate": (0, 15, 30, 45, 90),
  "posterize": (1, 2, 4, 6, 8),  # TensorFlow's shift by 8 leaves one bit; 12 bits are all 8
  "solarize": (0, 128, 256, 384, 768),
  "color": (0.1, 1.0, 1.9, 2.8, 5.5),
  "contrast": (0.1, 1.0, 1.9, 2.8, 5.5),
  "brightness": (0.1, 1.0, 1.9, 2.8, 5.5),
  "sharpness": (0.1, 1.0, 1.9, 2.8, 5.5),
  "shear_x": (0, 0.15, 0.3, 0.45, 0.9),
  "shear_y": (0, 0.15, 0.3, 0.45, 0.9),
  "translate_x": (0, 50, 100, 150, 300),
  "translate_y": (0, 50, 100, 150, 300),
  "solarize_add": (0, 55, 110, 165, 330),
}
MOVEMENTS = {"rotate", "shear_x", "shear_y", "translate_x", "translate_y"}


@pytest.mark.parametrize(("place", "magnitude"), [*enumerate((0, 5, 10, 15, 30))])
def test_the_published_ranges(place, magnitude):
  seen = drawn(RandAugment(magnitude=magnitude), images=500)
  for name, ends in RANGES.items():
    wanted = {-ends[place], ends[place]} if name in MOVEMENTS else {ends[place]}
    assert values(seen, name) == pytest.approx(sorted(wanted)), name
  assert {keywords["reach"] for keywords in seen["cutout"]} == {4 * magnitude}


def test_distances_grow_with_the_image():
  seen = drawn(RandAugment(), side=28)
  assert values(seen, "translate_x") == [-12.5, 12.5]
  assert {keywords["reach"] for keywords in seen["cutout"]} == {5}
  rows, columns = zip(*((k["row"], k["column"]) for k in seen["cutout"]), strict=True)
  assert {*rows} == {*columns} == {*range(28)}


@pytest.mark.parametrize(
  "name", ["posterize", "solarize", "color", "contrast", "brightness", "sharpness"]
)
def test_timms_operations_grow_stronger_with_the_magnitude(name):
  """Those of the published form are strongest at 0, where posterize leaves one bit."""
  pixels = np.random.default_rng(0).integers(0, 256, (32, 32, 3), np.uint8)
  changes = []
  for magnitude in (0.0, 3.0, 6.0, 9.0):
    step = RandAugmentTimm(magnitude=magnitude, deviation=0.0, probability=1.0)
    every = drawn(step, side=32, images=200)[name]
    found = (getattr(operations, name)(pixels, **keywords).astype(int) for keywords in every)
    changes.append(max(np.abs(out - pixels).mean() for out in found))
  assert changes == sorted(changes)
  assert changes[0] < changes[-1]


def test_timms_magnitude_is_normal_and_cut_off():
  seen = drawn(RandAugmentTimm(), images=6000)
  assert len(seen) == 15
  assert sum(map(len, seen.values())) == pytest.approx(6000, rel=0.05)  # half of two an image
  degrees = np.abs([k["degrees"] for k in seen["rotate"]])
  assert degrees.max() == 30  # of magnitude 10, at two standard deviations
  below = degrees[degrees < 27] / 3 - 9
  assert np.sqrt((below**2).mean()) == pytest.approx(0.5, rel=0.15)
  assert (degrees == 30).mean() == pytest.approx(0.0228, abs=0.02)
  assert not drawn(RandAugmentTimm(probability=0.0), images=50)


def test_three_augment_is_one_of_three():
  seen = drawn(ThreeAugment())
  assert {*seen} == {"grey", "solarize", "blur"}
  counts = [len(each) for each in seen.values()]
  assert sum(counts) == 2000
  assert [round(count / 2000, 1) for count in counts] == [0.3] * 3
  assert values(seen, "solarize") == [128]
  radii = np.array(values(seen, "blur"))
  assert (radii.min(), radii.max(), radii.mean()) == pytest.approx((0.1, 2, 1.05), abs=0.05)


def test_color_jitter_has_all_three_in_every_order():
  rng = np.random.default_rng(0)
  steps = [ColorJitter(strength=0.3).draw(rng, 32) for _ in range(200)]
  orders = {tuple(each.func.__name__ for each in step) for step in steps}
  assert len(orders) == 6
  assert all(len({*order}) == 3 for order in orders)
  factors = [each.keywords["factor"] for step in steps for each in step]
  assert (min(factors), max(factors)) == pytest.approx((0.7, 1.3), abs=0.01)


@pytest.mark.parametrize("side", [8, 32, 224])
def test_random_erasing_keeps_to_its_area_and_aspect(side):
  step = RandomErasing(probability=0.5, most_area=0.4)
  seen = drawn(step, side=side)["replace"]
  assert len(seen) == pytest.approx(1000, rel=0.1)
  for keywords in seen[:200]:
    height, width, channels = keywords["patch"].shape
    assert channels == 3
    assert 0 <= keywords["row"] <= side - height
    assert 0 <= keywords["column"] <= side - width
    assert (height - 0.5) * (width - 0.5) <= 0.4 * side**2
    assert (height + 0.5) * (width + 0.5) >= 0.02 * side**2
    assert (height + 0.5) / max(width - 0.5, 0.1) >= 0.3
    assert (width + 0.5) / max(height - 0.5, 0.1) >= 0.3
  noise = np.concatenate([keywords["patch"].ravel() for keywords in seen])
  assert noise.mean() == pytest.approx(127.5, abs=1.5)
  assert (noise.min(), noise.max()) == (0, 255)


# --- in a run ---


def transform(steps, **changes):
  return batches.train_transform(resolved.data(image_size=16, augment=steps, **changes))


def test_batches_are_a_function_of_seed_and_position():
  source, options = jpegs(30), dict(cut=transform(STEPS), side=16)
  whole = train(source, steps=4, **options)
  assert_equal(train(source, steps=2, start_step=2, threads=3, **options), whole[2:])
  other = train(source, steps=1, seed=9, **options)
  assert (other[0]["image"] != whole[0]["image"]).any()


def step(operation):
  """A step without draws."""

  def draw(rng, side):
    del rng
    assert side == 16
    return [operation]

  return types.SimpleNamespace(draw=draw)


def test_crop_and_flip_are_the_same_with_and_without_steps():
  rng = functools.partial(np.random.default_rng, 3)
  pixels = np.random.default_rng(0).integers(0, 256, (40, 50, 3), np.uint8)
  for changes in ({}, {"train_resize": 20}):
    crop = transform((), **changes)(pixels, rng=rng()).pixels
    steps = (step(lambda x: 255 - x), step(lambda x: x // 2), step(lambda x: x + np.uint8(1)))
    out = transform(steps, **changes)(pixels, rng=rng()).pixels
    np.testing.assert_array_equal(out, (255 - crop) // 2 + 1)  # in this order


SUMS = {
  "rand_augment": "6d6755e9",
  "rand_augment_timm": "1961dc2e",
  "three_augment": "e9ff0e85",
  "color_jitter": "ef5757bb",
  "random_erasing": "9f57c51d",
}


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.kind)
def test_draws_never_change(step):
  """Otherwise runs could not be resumed exactly."""
  digest, rng = hashlib.sha256(), np.random.default_rng(0)
  for _ in range(200):
    for operation in step.draw(rng, 32):
      drawn = {key: np.asarray(value).tolist() for key, value in operation.keywords.items()}
      digest.update(f"{operation.func.__name__} {drawn}".encode())
  assert digest.hexdigest()[:8] == SUMS[step.kind]


# --- settings ---


def test_the_list_is_read_and_written_in_its_order():
  config = resolved.config(data=Data(augment=[ColorJitter(strength=0.2), RandAugment(magnitude=7)]))
  again = from_dict(to_dict(config))
  assert again.data.augment == (ColorJitter(0.2), RandAugment(2, 7.0))
  for words, steps in {
    "[{'kind': 'random_erasing'}, {'kind': 'color_jitter', 'strength': 0.1}]": (
      RandomErasing(),
      ColorJitter(0.1),
    ),
    "()": (),
    "{'kind': 'three_augment'}": (ThreeAugment(),),
  }.items():
    assert recipe_file.replaced(again, {"data.augment": words}).data.augment == steps


def test_a_recipe_is_written_with_its_steps():
  config = resolved.config(data=Data(augment=(RandAugment(magnitude=7.0),)))
  names = {}
  title = 'Made from """ + 1\n\\'
  exec(as_recipe.as_recipe(config, {}, title), names)
  assert names["__doc__"] == 'Made from """ + 1\\n\\'
  assert from_dict(names["get_config"]().to_dict()) == config


# The setting, its value, and what the message says.
MISTAKES = [
  ("data.augment", "rand_augment", r"augment='rand_augment' .* as tuple; try \[{'kind': 'rand_au"),
  (
    "data.augment",
    "['rand_augment']",
    r"holds 'rand_augment'; write .* \[{'kind': 'rand_augm",
  ),
  ("data.augment", "[{'kind': 'randaug'}]", r"augment\[0\]\.kind='randaug' .*; nearest: rand_augm"),
  ("data.augment", "[{'layers': 2}]", r"augment\[0\]\.kind='' is not a choice"),
  ("data.augment", "[{'kind': 'rand_augment', 'm': 9}]", r"augment\[0\]\.m is not a setting"),
  *(
    ("data.augment", f"[{{'kind': '{kind}', '{name}': {value}}}]", message)
    for kind, name, value, message in (
      ("rand_augment", "magnitude", 31, r"\[0\]\.magnitude=31\.0 is too large .* 30"),
      ("rand_augment", "layers", 0, r"\[0\]\.layers=0 is too small .*least is 1"),
      ("rand_augment_timm", "magnitude", 11, r"magnitude=11\.0 is too large .* 10"),
      ("random_erasing", "probability", 2, "probability=2.0 is too large"),
    )
  ),
  ("evaluate.test.augment", "[{'kind': 'cut'}]", r"evaluate\.test\.augment is not a setting"),
]


@pytest.mark.parametrize(("key", "value", "message"), MISTAKES)
def test_mistakes_in_the_list(key, value, message):
  with pytest.raises(ConfigError, match=message):
    recipe_file.replaced(resolved.config(), {"evaluate.test.source": "digits", key: value})
