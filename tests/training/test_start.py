"""What a run that resumes takes from its checkpoint, and what it refuses to change."""

import contextlib
import dataclasses
import json
import os
import shutil
import types

import jax
import jax.numpy as jnp
import pytest

from tests import resolved
from tests.tiny_run import CONFIG
from tests.weights import families
from vit_jax import config as c
from vit_jax import launch, models, recipes, weights
from vit_jax.config.resolve import check_known, left, resolve
from vit_jax.data import datasets
from vit_jax.data.identity import Identity
from vit_jax.devices.hosts import Hosts
from vit_jax.evaluation.classification import Classification
from vit_jax.extras.dino.objective import Settings as DINO
from vit_jax.extras.settings import LoRA
from vit_jax.learning.classification import Settings
from vit_jax.learning.optimizers.adam import Adam
from vit_jax.learning.optimizers.schedule_free import ScheduleFree
from vit_jax.models.recognition import differences
from vit_jax.storage import checkpoint, manifest
from vit_jax.training import facts, start
from vit_jax.weights.card import Card


def saved(workdir, step, settings, history=()):
  """The parts of a checkpoint that these functions read."""
  meta = workdir / "checkpoints" / str(step) / "meta" / "metadata"
  meta.parent.mkdir(parents=True)
  described = {"config": settings, "images": [0, 0, 32], "trained_on": [*history]}
  meta.write_text(settings if isinstance(settings, str) else json.dumps(described))
  manifest.write(meta.parents[1])
  return workdir


# --- the description of a checkpoint ---


@pytest.mark.parametrize("damage", ["", "{", "[]", "{}", "[" * 100_000, '{"config": 3}'])
def test_the_newest_description_that_can_be_read_counts(tmp_path, damage):
  workdir = saved(tmp_path, 9, {"seed": 1})
  saved(workdir, 10, damage)
  step, meta = checkpoint.described(workdir)
  assert (step, meta["config"]) == (9, {"seed": 1})
  assert checkpoint.described(workdir, 10) == (0, {})
  saved(workdir, 11, {"seed": 2})
  assert checkpoint.described(workdir)[0] == 11
  assert checkpoint.described(workdir, 9)[0] == 9
  assert checkpoint.described(workdir / "checkpoints" / "9")[0] == 9
  description = workdir / "checkpoints/11" / checkpoint.META
  description.write_text(description.read_text().replace("2", "3"))  # not as it was written
  assert checkpoint.described(workdir)[0] == 9
  description.unlink()
  os.mkfifo(description)  # by a stranger: it is not waited for
  assert checkpoint.described(workdir)[0] == 9
  for other in ("checkpoints/09", "checkpoints/9.damaged", "checkpoints"):
    (tmp_path / other).mkdir(parents=True, exist_ok=True)
    assert checkpoint.named_by(tmp_path / other) == (tmp_path / other, [])


# --- what only counts before the first step ---

STARTED = resolved.config(init_from="w.npz", new_head=True, model=c.Model(head_bias=-10.0))


def begun(folder, config=STARTED, step=9):
  return start.read_recorded(saved(folder, step, json.loads(json.dumps(c.to_dict(config)))))


@pytest.mark.parametrize(
  ("changes", "said"),
  [
    (dict(init_from="other.npz"), "config.init_from: 'w.npz' -> 'other.npz'"),
    (dict(init_from=""), "config.init_from: 'w.npz' -> ''"),
    (dict(new_head=False), "config.new_head: True -> False"),
    (dict(new_positions=True), "config.new_positions: False -> True"),
    (
      dict(position_resizing="bicubic"),
      "config.position_resizing: 'bilinear_aligned' -> 'bicubic'",
    ),
    (dict(keep_representation=True), "config.keep_representation: False -> True"),
    (dict(class_names="data"), "config.class_names: '' -> 'data'"),
    (dict(model=c.Model()), "config.model.head_bias: -10.0 -> 0.0"),
    (dict(model=c.Model(head_bias=-10.0, head_std=0.1)), "config.model.head_std: 0.0 -> 0.1"),
    (dict(model=c.Model(layer_scale_init=1.0)), "config.model.layer_scale_init: 0.0001 -> 1.0"),
    (dict(data=c.Data(repeats=2)), "config.data.repeats: 1 -> 2"),
    (dict(lora=LoRA(rank=8)), "config.lora.rank: 0 -> 8"),
    (dict(optimizer=Adam(ema=0.9)), "config.optimizer.ema: 0.0 -> 0.9"),
    (dict(optimizer=Adam(ema=0.0, ema_corrected=False)), "optimizer.ema_corrected: True -> False"),
  ],
)
def test_what_a_run_started_from_cannot_be_changed(tmp_path, changes, said):
  before = begun(tmp_path)
  with pytest.raises(c.ConfigError) as caught:
    start.check_start(dataclasses.replace(STARTED, **changes, seed=5), before)
  assert str(caught.value).startswith(f"{tmp_path} has 9 steps already, and config.")
  assert said in str(caught.value)
  start.check_start(dataclasses.replace(STARTED, **changes), start.Recorded(tmp_path))  # a new run


def test_the_average_of_a_schedule_free_run_keeps_its_weight(tmp_path):
  config = resolved.config(optimizer=ScheduleFree(beta1=0.9))
  other = dataclasses.replace(config, optimizer=ScheduleFree(beta1=0.95))
  with pytest.raises(c.ConfigError, match=r"optimizer\.beta1: 0\.9 -> 0\.95 only counts from the"):
    start.check_start(other, begun(tmp_path, config))
  adam = begun(tmp_path / "adam", resolved.config(optimizer=Adam(beta1=0.9)))
  start.check_start(resolved.config(optimizer=Adam(beta1=0.95)), adam)


def test_weights_may_be_moved_and_not_replaced(tiny_run, tmp_path):
  """As with a study whose folder is renamed; the run goes on without reading them."""
  before, now, other = (tmp_path / name / "pre" for name in ("a", "b", "c"))
  shutil.copytree(tiny_run, now, ignore=shutil.ignore_patterns("state"))
  history = datasets.history_as_dicts(start.history_of(str(now)))
  saved(other, 9, {"seed": 1})  # its weights have another history: none
  of_run = dataclasses.replace(CONFIG, init_from=str(before))
  saved(tmp_path / "run", 3, json.loads(json.dumps(c.to_dict(of_run))), history)
  run = start.read_recorded(tmp_path / "run")
  asked = {place: dataclasses.replace(CONFIG, init_from=str(place)) for place in (now, other)}
  config, *_ = launch.open_run(start.as_begun(asked[now], run), run, Hosts())
  assert config.init_from == str(before)
  with pytest.raises(c.ConfigError, match=r"config\.init_from: .*/a/pre' -> .*/c/pre'"):
    start.as_begun(asked[other], run)
  shutil.copytree(now, before)  # they are still there
  with pytest.raises(c.ConfigError, match=r"config\.init_from: .*/a/pre' -> .*/b/pre'"):
    start.as_begun(asked[now], run)


def test_a_checkpoint_of_another_run_is_no_moved_one(tiny_run, tmp_path):
  """Its step is the same, and so are the images that it was trained on."""
  (step,) = (path.name for path in (tiny_run / "checkpoints").iterdir())
  before, moved, other = (
    tmp_path / name / "checkpoints" / step for name in ("a/pre", "b/pre", "a/post")
  )
  for place in (moved, other):
    ignored = shutil.ignore_patterns("state")
    shutil.copytree(tiny_run, place.parent.parent, ignore=ignored)
  history = datasets.history_as_dicts(start.history_of(str(other)))
  of_run = dataclasses.replace(CONFIG, init_from=str(before))
  saved(tmp_path / "run", 3, json.loads(json.dumps(c.to_dict(of_run))), history)
  run = start.read_recorded(tmp_path / "run")
  asked = {place: dataclasses.replace(CONFIG, init_from=str(place)) for place in (moved, other)}
  assert start.as_begun(asked[moved], run).init_from == str(before)
  with pytest.raises(c.ConfigError, match=r"config\.init_from: .*/a/pre/.* -> .*/a/post/"):
    start.as_begun(asked[other], run)


def test_other_settings_may_change_and_a_path_stays_as_it_was_written(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  before, path = begun(tmp_path / "run"), str(tmp_path / "." / "w.npz")
  changed = dataclasses.replace(STARTED, init_from=path, batch_size=7, seed=5)
  found = start.as_begun(changed, before)
  assert found == dataclasses.replace(changed, init_from="w.npz")
  start.check_start(found, before)


@pytest.mark.parametrize("rule", [c.AUTO, "bicubic_offset"])
@pytest.mark.parametrize("resampling", [c.AUTO, "pillow_box"])
def test_how_images_and_positions_are_resized_comes_from_weights_and_stays(
  tmp_path, resampling, rule
):
  """What the settings say goes before; a run that goes on does not look at the weights."""
  data = dataclasses.replace(STARTED.data, resampling=resampling)
  asked = dataclasses.replace(STARTED, data=data, position_resizing=rule)
  card = Card(16, resampling="torchvision_bicubic", position_resizing="bicubic")
  of_weights = ("torchvision_bicubic", "bicubic")
  cases = (
    (card, DINO(), of_weights),
    (None, DINO(), ("bilinear", "bicubic_offset")),
    (None, Settings(), ("bilinear", "bilinear_aligned")),
  )
  for number, (known, objective, usual) in enumerate(cases):
    asked = dataclasses.replace(asked, objective=objective)
    found = resolve(asked, {"card": lambda _, known=known: known})
    expected = tuple(
      one if given == c.AUTO else given
      for given, one in zip((resampling, rule), usual, strict=True)
    )
    assert (found.data.resampling, found.position_resizing) == expected
    before = begun(tmp_path / str(number), found)
    again = resolve(asked, {}, before.config)
    assert (again.data.resampling, again.position_resizing) == expected
    start.check_start(again, before)


# --- a run whose checkpoints were removed, or are damaged ---


@pytest.mark.parametrize(
  ("place", "lines", "words"),
  [
    ("checkpoints", 1, ""),  # it ended before its first save
    ("checkpoints/9.damaged", 0, "all checkpoints in .* are damaged"),
    ("checkpoints/9.damaged", 1, "all checkpoints in .* are damaged"),
    ("checkpoints/9.damaged-again", 1, "all checkpoints in .* are damaged"),
    (".", 0, ""),
    (".", 1, "has metrics of 9 steps, but .* has no checkpoint"),
  ],
)
def test_a_run_does_not_begin_anew_if_its_checkpoints_are_lost(tmp_path, place, lines, words):
  (tmp_path / place).mkdir(parents=True, exist_ok=True)
  (tmp_path / "metrics.jsonl").write_text('{"step": 9, "loss": 1.0}\n' * lines)
  assert_refused(tmp_path, words)


def test_an_evaluated_run_does_not_begin_anew_in_an_empty_folder(tmp_path):
  """It was saved before: the disk is not mounted, or what was in a bucket is removed."""
  metrics = tmp_path / "metrics.jsonl"
  lines = [{"step": 9, "test/top1": 0.5}, {"step": 12, "loss": 1.0}]
  metrics.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
  (tmp_path / "checkpoints").mkdir()
  assert_refused(tmp_path, "has metrics of 12 steps, but .* has no checkpoint")
  saved(tmp_path, 12, "{")  # it is there and damaged, as the restore will say
  assert_refused(tmp_path, "")
  shutil.rmtree(tmp_path / "checkpoints/12")
  metrics.rename(tmp_path / "old.jsonl")  # as the message says
  assert_refused(tmp_path, "")


def assert_refused(folder, words):
  """`words` are of the message; "": it is not refused."""
  refused = contextlib.nullcontext()
  if words:
    refused = pytest.raises(c.ConfigError, match=rf"^{folder}.* {words}.*anew")
  with refused:
    start.check_saved(start.read_recorded(folder))


def test_a_checkpoint_is_no_workdir(tmp_path):
  """Its run would seem to go on, and would begin with random parameters."""
  run = saved(tmp_path, 9, {"seed": 1})
  place = run / "checkpoints" / "9"
  words = rf"--workdir={place} is a checkpoint of {run}.*--config\.init_from={place}"
  with pytest.raises(c.ConfigError, match=words):
    start.read_recorded(place)
  inner = saved(tmp_path / "checkpoints" / "8", 3, {"seed": 2})  # a run in such a folder
  assert start.read_recorded(inner).step == 3


# --- the images of a run that goes on ---

IMAGES = Identity(9, "2 ('a', 'b')", "n", "s", "c")


@pytest.mark.parametrize(
  ("other", "said"),
  [
    (IMAGES._replace(images=8), "9 -> 8 images"),
    (IMAGES._replace(classes="2 ('b', 'a')", names="m"), r"classes 2 \('a', 'b'\) -> 2 "),
    (IMAGES._replace(names="m"), "other names, labels or files"),
    (IMAGES._replace(sizes="t"), "files of other sizes"),
    (IMAGES._replace(content="d"), "images with other content"),
  ],
)
@pytest.mark.parametrize("key", ["config.data.train", "config.evaluate.test"])
def test_a_run_goes_on_with_other_images_only_if_told_to(tmp_path, key, other, said):
  before = dataclasses.replace(begun(tmp_path), data={key: IMAGES})
  start.check_data(before, STARTED, {key: IMAGES, "config.evaluate.new": other})
  with pytest.raises(c.ConfigError, match=rf"9 steps already, of other images: {key}: {said}"):
    start.check_data(before, STARTED, {key: other})
  go_on = dataclasses.replace(STARTED, data=c.Data(changed="continue"))
  start.check_data(before, go_on, {key: other})
  start.check_data(begun(tmp_path / "old"), STARTED, {key: other})  # it does not tell its images


def test_images_that_a_setting_asks_for_are_no_surprise(tmp_path):
  before = dataclasses.replace(begun(tmp_path), data={"config.data.train": IMAGES})
  other = {"config.data.train": IMAGES._replace(images=8)}
  asked, moved = (
    dataclasses.replace(STARTED, data=c.Data(train=train))
    for train in (c.Dataset(subset=8), c.Dataset("folder:/moved"))
  )
  start.check_data(before, asked, other)
  start.check_data(before, moved, before.data)
  with pytest.raises(c.ConfigError, match="9 -> 8 images"):
    start.check_data(before, moved, other)


# --- a run without a step left ---


def finished(folder, *, evaluated=True):
  folder.mkdir(exist_ok=True)
  line = {"step": 9, "val/top1": 0.5} if evaluated else {"step": 9, "loss": 1.0}
  (folder / "metrics.jsonl").write_text(json.dumps(line) + "\n")
  return begun(folder)


DIGITS = {"val": Classification("digits", "test")}


@pytest.mark.parametrize(
  ("changes", "total", "said"),
  [
    (dict(schedule=c.Schedule(learning_rate=0.5)), 9, "config.schedule.learning_rate: "),
    (dict(seed=3), 8, "config.seed: 0 -> 3"),
    (dict(duration=c.Duration(steps=4)), 4, "config.duration.steps: 0 -> 4"),
    (dict(evaluate=DIGITS), 9, "config.evaluate.val"),
    (dict(data=c.Data(threads=2)), 9, "config.data.threads"),
  ],
)
def test_a_finished_run_refuses_what_has_no_effect(tmp_path, changes, total, said):
  before, config = finished(tmp_path), dataclasses.replace(STARTED, **changes)
  with pytest.raises(c.ConfigError) as caught:
    start.check_changes(config, before, total, {})
  assert str(caught.value).startswith(f"{tmp_path} has all of its 9 steps, so {said}")
  start.check_changes(config, before, 10, {})  # a longer run
  start.check_changes(config, start.Recorded(tmp_path), total, {})  # a new one


@pytest.mark.parametrize(
  ("changes", "evaluated"),
  [
    (dict(report=False, mesh=c.Mesh(fsdp=2), stall_seconds=9.0), True),
    (dict(evaluate=DIGITS), False),
    (dict(batch_size=2, accumulation=2), False),
    (dict(data=c.Data(threads=2, ahead=1, max_pixels=9_999)), False),
  ],
)
def test_a_finished_run_takes_what_has_an_effect(tmp_path, changes, evaluated):
  config = dataclasses.replace(STARTED, **changes)
  start.check_changes(config, finished(tmp_path, evaluated=evaluated), 9, {})


def test_an_evaluation_that_is_left_to_do_is_of_the_same_images(tmp_path):
  data = {"config.data.train": IMAGES, "config.evaluate.val": IMAGES}
  other = {key: IMAGES._replace(images=8) for key in data}
  run = dataclasses.replace(finished(tmp_path / "left", evaluated=False), data=data)
  with pytest.raises(
    c.ConfigError, match=r"of other images: config\.evaluate\.val: 9 -> 8 images\."
  ):
    start.check_changes(STARTED, run, 9, other)
  start.check_changes(STARTED, run, 9, other | {"config.evaluate.val": IMAGES})
  done = dataclasses.replace(finished(tmp_path / "done"), data=data)
  start.check_changes(STARTED, done, 9, other)


def test_a_run_that_was_stopped_early_has_no_step_left(tmp_path):
  watch = c.EarlyStopping(metric="val/top1", patience=1)
  config = dataclasses.replace(STARTED, early_stopping=watch)
  before = begun(tmp_path, config)
  lines = [{"step": step, "val/top1": 0.5} for step in (3, 9)]
  (tmp_path / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
  other = dataclasses.replace(config, seed=3)
  with pytest.raises(c.ConfigError, match=r"config\.seed: 0 -> 3 has no effect") as caught:
    start.check_changes(other, before, 100, {})
  assert f"{tmp_path} was stopped early after step 9, so " in str(caught.value)
  assert ", raise config.early_stopping.patience (0: never), score" in str(caught.value)
  patient = dataclasses.replace(other, early_stopping=dataclasses.replace(watch, patience=2))
  start.check_changes(patient, before, 100, {})


# --- the model of the weights ---

RATE = c.Schedule(learning_rate=0.01)
UNNAMED = c.Config(model=c.Model(dropout=0.1, num_classes=7), schedule=RATE)


def of_weights(path, before=None, **model):
  """The settings of a run that starts from these weights, or goes on as it began with `before`."""
  config = dataclasses.replace(UNNAMED, model=dataclasses.replace(UNNAMED.model, **model))
  config = dataclasses.replace(config, init_from=str(path))
  return resolve(config, facts.of_start(), before)


@pytest.mark.parametrize("family", ["vit", "bit", "representation"])
def test_the_model_of_a_file(tmp_path, family):
  path = tmp_path / "w.npz"
  weights.save(path, families.params(family))
  found = of_weights(path).model
  assert (found.dropout, found.num_classes) == (0.1, 7)
  plain = dataclasses.replace(found, dropout=0.0)
  assert differences(models.configured(plain), families.module(family)) == []


def test_weights_that_have_changed_are_read_anew_by_the_next_run(tmp_path):
  path = tmp_path / "w.npz"
  for family in ("vit", "representation"):
    weights.save(path, families.params(family))
    config = dataclasses.replace(UNNAMED, init_from=str(path))
    known = facts.of_start()["start"](config).weights.params
    assert known.keys() == families.params(family).keys()
  once = facts.of_start()["start"]
  assert once(config) is once(config)


def test_the_model_of_another_run(tiny_run, tmp_path):
  """No array is read: it would touch the devices before the processes of a run are connected."""
  run = tmp_path / "run"
  shutil.copytree(tiny_run, run, ignore=shutil.ignore_patterns("state"))
  (step,) = (run / "checkpoints").iterdir()
  for place in (run, step):
    found = of_weights(place).model
    assert (found.name, found.depth, found.width) == ("ViT-Ti/4", 1, 8)
  assert of_weights(run, depth=3).model.depth == 3  # a contradiction that the start refuses
  assert facts.start_of(str(step)).weights is None


def test_a_run_that_goes_on_has_its_own_model(tmp_path):
  """It does not look at the weights, which may be gone; nor does one that names its model."""
  config = resolved.config(init_from="/none-such", model=c.Model(name="ViT-S/16", depth=5))
  assert (config.model.name, config.model.width) == ("ViT-S/16", 384)
  assert {*left(config)} == {"model.num_classes", "mesh.data"}
  found = of_weights("/none-such", begun(tmp_path, config).config).model
  assert (found.name, found.depth, found.dropout) == ("ViT-S/16", 5, 0.1)


@pytest.mark.parametrize(
  ("settings", "message"),
  [
    ({"model": {"name": 3}}, r"model\.name=3 is int"),
    ({"model": {"name": "ViT-X"}}, r"model\.name='ViT-X' is no model; nearest: ViT-"),
    ({"model": 3}, r"config\.model=3 is one value"),
    ({"batch_sizes": 3}, r"config\.batch_sizes is not a setting; nearest: config\.batch_size"),
  ],
)
def test_recorded_settings_that_cannot_be_read(tmp_path, settings, message):
  before = start.read_recorded(saved(tmp_path, 9, settings))
  with pytest.raises(c.ConfigError, match=rf"^{tmp_path}, checkpoint 9: .*{message}"):
    _ = before.config


def test_models_that_are_not_known(tmp_path):
  no_model = saved(tmp_path, 9, {"batch_size": 3})
  for place, message in (("/none-such.npz", "does not exist"), (no_model, "name no model")):
    with pytest.raises(c.ConfigError, match=rf"^config\.init_from={place}: .*{message}"):
      of_weights(place)
  alone = resolve(UNNAMED, facts.of_start())
  with pytest.raises(c.ConfigError, match=r"^config\.model\.name=auto follows .*not known here"):
    check_known(alone, {key for key in left(alone) if key != "model.name"})


# --- the type of activations ---


@pytest.mark.parametrize(
  ("platform", "quick"),
  [("cpu", "float32"), ("gpu", "bfloat16"), ("tpu", "bfloat16"), ("", c.AUTO)],
)
def test_a_run_goes_on_in_its_type_and_a_new_one_takes_the_quick_one(platform, quick):
  device = {"device": lambda _: types.SimpleNamespace(platform=platform)} if platform else {}
  of_type = lambda kind: c.Config(model=c.Model(compute_dtype=kind))
  found = lambda asked, before: resolve(of_type(asked), device, before).model.compute_dtype
  assert found(c.AUTO, None) == quick
  assert found(c.AUTO, of_type(c.AUTO)) == quick  # the settings do not tell it
  for kind, other in (("float32", "bfloat16"), ("bfloat16", "float32")):
    assert found(c.AUTO, of_type(kind)) == kind
    assert found(other, of_type(kind)) == other  # a type that is named is used


def test_recipes_for_fine_tuning_leave_the_type_to_the_devices():
  """Activations are in bfloat16 in a program that is compiled for a pod, without a run."""
  for recipe in ("finetune.py:ViT-Ti/16,cifar10", "vtab.py:ViT-Ti/16,cifar-100"):
    config = recipes.load(f"configs/{recipe}")
    assert config.model.compute_dtype == "auto"
    assert models.configured(config.model).dtype == jnp.bfloat16
    on_cpu = resolve(config, facts.of_devices(jax.devices("cpu")))
    assert models.configured(on_cpu.model).dtype == jnp.float32
