"""What a config amounts to: classes that agree, durations in steps, the same batches everywhere."""

import dataclasses
import functools

import jax
import numpy as np
import pytest

from tools import cache as tools_cache
from vit_jax import config as c
from vit_jax import plan
from vit_jax.data import cache, images


def digits(split="train"):
  return c.Dataset(source="digits", split=split)


CONFIG = c.Config(
  batch_size=16,
  duration=c.Duration(epochs=2),
  model=c.Model(name="ViT-Ti/4", depth=1, width=16, mlp_dim=16, heads=2, num_classes=10),
  data=c.Data(train=digits(), evaluate={"test": digits("test"), "none": c.Dataset()}, image_size=8),
)


@pytest.mark.parametrize(
  ("own", "side", "resize"),
  [(-1, 8, 10), (0, 8, 0), (1, 8, 8), (512 / 480, 480, 512), (512 / 480, 384, 410)],
)
def test_a_set_may_be_resized_in_its_own_way(own, side, resize):
  """In pixels, from a ratio: ObjectNet's 512 to 480 holds at every image size."""
  sets = {"set": c.Dataset("digits", "test", resize=own)}
  data = c.Data(evaluate=sets, image_size=side, evaluate_resize=10)
  assert plan.evaluation_resize(data, "set") == resize


def test_sources_with_other_classes_are_refused(tmp_path):
  for name in "abcdefghij":
    (tmp_path / name).mkdir()
    (tmp_path / name / "1.png").write_bytes(b"")
  other = c.Dataset(source=f"folder:{tmp_path}")
  config = dataclasses.replace(
    CONFIG, data=dataclasses.replace(CONFIG.data, evaluate={"mine": other})
  )
  with pytest.raises(c.ConfigError, match=r"evaluate\.mine.*class 0 is 'a' there and '0'"):
    plan.open_data(config)


def test_evaluation_sets_without_a_source_are_left_out():
  assert list(plan.open_data(CONFIG).evaluate) == ["test"]


def test_durations():
  config = dataclasses.replace(
    CONFIG,
    log_every=c.Duration(examples=160),
    evaluate_every=c.Duration(epochs=0.5),
    checkpoint=c.Checkpoint(every=c.Duration(steps=9), keep_every=c.Duration(epochs=1)),
    schedule=c.Schedule(warmup=c.Duration(epochs=1)),
  )
  steps = plan.steps_of(config, 1437)
  assert steps == plan.Steps(total=180, warmup=90, log=10, evaluate=45, save=9, keep=90)


@pytest.mark.parametrize(
  ("keep", "save", "expected"),
  [(0, 7, 0), (6, 4, 8), (5, 4, 4), (1, 4, 4), (50_000, 6, 49_998), (5, 0, 5)],
)
def test_checkpoints_are_kept_at_steps_that_are_saved(keep, save, expected):
  checkpoint = c.Checkpoint(every=c.Duration(steps=save), keep_every=c.Duration(steps=keep))
  steps = plan.steps_of(dataclasses.replace(CONFIG, checkpoint=checkpoint), 1437)
  assert steps.keep == expected


def test_train_batches_resume_where_they_left_off():
  made = plan.make(CONFIG, plan.open_data(CONFIG))
  whole = plan.train_batches(made, 0)
  first = [next(whole) for _ in range(5)]
  later = plan.train_batches(made, 3)
  for batch in first[3:]:
    again = next(later)
    for key in batch:
      np.testing.assert_array_equal(batch[key], again[key])
  assert first[0]["image"].shape == (16, 8, 8, 3)
  assert not np.array_equal(first[0]["image"], first[1]["image"])


@pytest.mark.parametrize("flip", [False, True])
def test_training_images_are_crops_or_squares_of_the_resized_image(flip):
  pixels = np.random.default_rng(0).integers(0, 256, (30, 20, 3), np.uint8)
  crop = dict(area=(0.5, 0.6), aspect=(1.0, 1.5))
  data = c.Data(image_size=8, crop_area=crop["area"], crop_aspect=crop["aspect"], flip=flip)
  common = dict(size=8, flip=flip, max_pixels=data.max_pixels)
  for settings, expected in (
    (data, functools.partial(images.train_image, **crop)),
    (dataclasses.replace(data, train_resize=12), functools.partial(images.train_square, resize=12)),
  ):
    for seed in range(4):
      drawn = plan.train_transform(settings)(pixels, rng=np.random.default_rng(seed))
      wanted = expected(pixels, rng=np.random.default_rng(seed), **common)
      np.testing.assert_array_equal(drawn, wanted)


def test_the_learning_rate_is_that_of_the_settings():
  schedule = c.Schedule(learning_rate=2.0, warmup=c.Duration(steps=10), decay="steps", drops=(0.5,))
  config = dataclasses.replace(CONFIG, duration=c.Duration(steps=40), schedule=schedule)
  made = plan.make(config, plan.open_data(config))
  np.testing.assert_allclose([made.rate(s) for s in (5, 10, 19, 20)], [1, 2, 2, 0.2], rtol=1e-6)


def test_a_cache_is_read_for_training_alone(tmp_path):
  config = dataclasses.replace(
    CONFIG, data=dataclasses.replace(CONFIG.data, cache=str(tmp_path / "cache"), cache_side=8)
  )
  with pytest.raises(c.ConfigError, match="There is no cache"):
    plan.open_data(config)
  tools_cache.prepare(config)
  with pytest.raises(c.ConfigError, match="its cache_side is 8, this run's 9"):
    plan.open_data(dataclasses.replace(config, data=dataclasses.replace(config.data, cache_side=9)))
  plain = plan.make(CONFIG, plan.open_data(CONFIG))
  made = plan.make(config, plan.open_data(config))
  assert type(made.data.train) is cache.Cached
  assert type(made.data.evaluate["test"]) is type(plain.data.evaluate["test"])
  for read in (
    lambda plan_: next(plan.train_batches(plan_, 2)),  # digits are no larger than the cache's side
    lambda plan_: next(plan.evaluate_batches(plan_, "test")),
  ):
    first, second = read(plain), read(made)
    for key in first:
      np.testing.assert_array_equal(first[key], second[key])


def test_evaluation_batches_are_as_large_as_a_part_of_a_step():
  made = plan.make(
    dataclasses.replace(CONFIG, batch_size=32, accumulation=2), plan.open_data(CONFIG)
  )
  batches = list(plan.evaluate_batches(made, "test"))
  assert {len(batch["mask"]) for batch in batches} == {16}
  assert sum(batch["mask"].sum() for batch in batches) == 360


def test_cudnn_needs_a_gpu():
  model = dataclasses.replace(CONFIG.model, attention="cudnn", compute_dtype="bfloat16")
  config = dataclasses.replace(CONFIG, model=model)
  with pytest.raises(c.ConfigError, match=r"needs a GPU, and this is a cpu"):
    plan.make(config, plan.open_data(config))


def test_several_processes_cannot_go_on_after_a_failed_save(monkeypatch):
  config = c.Config(checkpoint=c.Checkpoint(on_failure="go_on"))
  plan.check_devices(config, "cpu")
  monkeypatch.setattr(jax, "process_count", lambda: 2)
  with pytest.raises(c.ConfigError, match=r"on_failure='go_on' is for a run of one process, .* 2;"):
    plan.check_devices(config, "cpu")


def test_a_run_that_began_before_the_crops_were_bounded_goes_on_with_its_own():
  pixels = np.arange(64 * 3, dtype=np.uint8).reshape(8, 8, 3)

  def seen(sampling):
    data = c.Data(image_size=8, crop_area=(0.5, 1.0), sampling=sampling)
    draw = plan.train_transform(data)
    return [draw(pixels, rng=np.random.default_rng(seed)).tobytes() for seed in range(300)]

  differ = sum(a != b for a, b in zip(seen("grain"), seen("uniform"), strict=True))
  assert 0 < differ < 60
