"""Distillation: the loss of labels and of a teacher's logits, in steps and in a run."""

import dataclasses
import functools
import pathlib
import re
import shutil

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import ends, modules, reference, resolved
from tests.learning import steps
from tests.learning.test_objective import run
from tests.seams import program
from vit_jax import config as c
from vit_jax import models, recipes, weights
from vit_jax.config.fields import Labels
from vit_jax.config.resolve import resolve
from vit_jax.data import batches, datasets
from vit_jax.extras import lora
from vit_jax.extras.distillation import teacher as teachers
from vit_jax.extras.distillation.objective import DIFFERENCE, TARGETS, Distillation, Given, Settings
from vit_jax.extras.settings import LoRA
from vit_jax.learning.objective import OBJECTIVE_PARAMS
from vit_jax.storage import checkpoint, metrics_log
from vit_jax.training import start
from vit_jax.weights.card import Card

SIDE, CLASSES = 8, 5
ORDER = (3, 1, 0, 4, 2)
DIFFERENCE_OF_BIASES = f"{OBJECTIVE_PARAMS}/{DIFFERENCE}/bias"
batch = functools.partial(steps.batch, side=SIDE, broken=(2, 9))


@dataclasses.dataclass(frozen=True)
class Linear:
  """A model that is quickly compiled; it computes in training or in evaluation alone."""

  train: bool
  dtype: object = jnp.float32
  channels: int = 3

  def init(self, key, images, *, train):
    del train
    kernel = jax.random.normal(key, (images[0].size, CLASSES)) / 10
    return {"params": {"head": {"kernel": kernel, "bias": jnp.zeros(CLASSES)}}}

  def apply(self, variables, images, *, train, rngs=None):
    assert (train, rngs is not None) == (self.train, self.train)
    head = variables["params"]["head"]
    return images.reshape(len(images), -1) @ head["kernel"] + head["bias"], {}

  def macs(self, height, width):
    return height * width * 3 * CLASSES


def params_of(seed):
  rng = np.random.default_rng(seed)
  kernel = np.float32(rng.normal(size=(SIDE * SIDE * 3, CLASSES)) / 10)
  return {"head": {"kernel": kernel, "bias": np.float32(rng.normal(size=CLASSES))}}


STUDENT = params_of(1)
TEACHER = Given(Linear(train=False), params_of(2), ORDER)


def objective_of(target, model=Linear(train=True), **fields):
  taught = functools.partial(TARGETS[target], temperature=2.5)
  return Distillation(model, teacher=TEACHER, taught=taught, share=0.3, **fields)


# --- the loss ---


def in_numpy(target, logits, told, temperature):
  """The teacher's loss of each image, in float64."""
  if target == "hard":
    own = np.log(reference.softmax(logits))
    return -own[np.arange(len(own)), told.argmax(axis=-1)]
  p, q = (reference.softmax(x / temperature) for x in (told, logits))
  return temperature**2 * (p * (np.log(p) - np.log(q))).sum(axis=-1)


@pytest.mark.parametrize("target", TARGETS)
def test_losses_against_the_formulas(target):
  rng = np.random.default_rng(0)
  logits, told = 3 * rng.normal(size=(2, 64, 10))
  for temperature in (0.5, 1.0, 4.0):
    arguments = np.float32(logits), np.float32(told)
    found = TARGETS[target](*arguments, temperature=temperature)
    wanted = in_numpy(target, *map(np.float64, arguments), temperature)
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6 * max(1, temperature**2))


def logits_of(params, images):
  kernel, bias = (np.float64(params["head"][name]) for name in ("kernel", "bias"))
  return (np.float64(images).reshape(len(images), -1) / 127.5 - 1) @ kernel + bias


def told_of(images):
  return logits_of(TEACHER.params, images)[:, ORDER]


@pytest.mark.parametrize("target", TARGETS)
def test_the_sums_of_a_batch_and_where_gradients_go(target):
  shares = (1.0, 2.0, 3.0, 4.0, 5.0)
  objective = objective_of(target, class_weights=shares)
  params, one = STUDENT, batch()
  extra = objective.given()

  @jax.jit
  def loss(params, extra):
    sums = objective.loss(params, extra, one, jax.random.key(0))
    return sums.loss, sums

  (total, sums), (of_student, of_teacher) = jax.value_and_grad(loss, (0, 1), has_aux=True)(
    params, extra
  )
  assert not any(np.any(x) for x in jax.tree.leaves(of_teacher))
  assert all(np.any(x) for name, x in of_student["head"].items())
  logits, told = logits_of(params, one["image"]), told_of(one["image"])
  weight = one["mask"] * np.array(shares)[one["labels"]]
  own = -np.log(reference.softmax(logits))[np.arange(16), one["labels"]]
  taught = in_numpy(target, logits, told, 2.5)
  np.testing.assert_allclose(total, (weight * (0.7 * own + 0.3 * taught)).sum(), rtol=1e-5)
  assert sums.count == weight.sum()
  kept = one["mask"] > 0
  found = {name: value / count for name, (value, count) in sums.metrics.items()}
  wanted = {
    "accuracy": (logits.argmax(-1) == one["labels"])[kept].mean(),
    "teacher_loss": taught[kept].mean(),
    "agreement": (logits.argmax(-1) == told.argmax(-1))[kept].mean(),
    "teacher_accuracy": (told.argmax(-1) == one["labels"])[kept].mean(),
  }
  chex.assert_trees_all_close(found, wanted, rtol=1e-5)


def test_with_a_distillation_token_each_token_has_a_head_of_its_own():
  sizes = dict(depth=1, width=8, mlp_dim=8, heads=2, num_classes=CLASSES)
  model = models.create("ViT-Ti/4", **sizes, pool="distilled")
  objective = objective_of("hard", model)
  shapes = jax.eval_shape(lambda: objective.init(jax.random.key(0), SIDE))
  params = modules.parameters(model, np.zeros((1, SIDE, SIDE, 3), np.float32), train=False)
  half = np.linspace(-1, 1, CLASSES, dtype=np.float32)
  params |= {OBJECTIVE_PARAMS: {DIFFERENCE: {"bias": half}}}
  chex.assert_trees_all_equal_shapes(params, shapes)
  one = batch()
  pixels = batches.normalize(one["image"], jnp.float32)
  logits, features = modules.run(model, params, pixels)
  tokens = np.split(np.float64(features["pre_logits"]), 2, axis=-1)
  kernels = np.split(2 * np.float64(params["head"]["kernel"]), 2)
  biases = (np.float64(params["head"]["bias"]) + sign * half for sign in (1, -1))
  first, second = (x @ w + b for x, w, b in zip(tokens, kernels, biases, strict=True))
  np.testing.assert_allclose((first + second) / 2, logits, atol=1e-5)  # as it is scored
  told = told_of(one["image"])
  own = -np.log(reference.softmax(first))[np.arange(16), one["labels"]]
  wanted = one["mask"] @ (0.7 * own + 0.3 * in_numpy("hard", second, told, 1))
  found = jax.jit(objective.loss)(params, objective.given(), one, jax.random.key(0))
  np.testing.assert_allclose(found.loss, wanted, rtol=1e-5)


@pytest.mark.parametrize(
  ("pattern", "trained"),
  [
    (".*", ["head/bias", DIFFERENCE_OF_BIASES]),
    ("head/.*", ["head/bias", DIFFERENCE_OF_BIASES]),
    ("head/kernel", []),
    ("embedding/.*", []),
  ],
)
@pytest.mark.parametrize("with_lora", [False, True])
def test_both_heads_are_trained_with_the_head(pattern, trained, with_lora):
  """Their biases are one array of the model and one of the objective."""
  objective = objective_of("hard", models.create("ViT-Ti/4", pool="distilled"))
  if with_lora:
    objective = lora.LoRA(objective, LoRA(rank=2))
  found = objective.trainable(pattern)
  both = "head/bias", DIFFERENCE_OF_BIASES
  assert [name for name in both if re.fullmatch(found, name)] == trained
  assert objective.per_class() == DIFFERENCE_OF_BIASES


def test_mixed_images_are_those_that_the_teacher_sees():
  objective = objective_of("soft", mixup=1.0)
  one = objective.prepare(batch(), jax.random.key(1))
  share = np.float64(one["share"])[:, None, None, None]
  mixed = share * one["image"] + (1 - share) * one["partner_image"]
  found = jax.jit(objective.loss)(STUDENT, objective.given(), one, jax.random.key(0))
  value, _ = found.metrics["teacher_loss"]
  wanted = one["mask"] @ in_numpy("soft", logits_of(STUDENT, mixed), told_of(mixed), 2.5)
  np.testing.assert_allclose(value, wanted, rtol=1e-5)


def test_the_teacher_costs_a_forward_pass():
  macs = SIDE * SIDE * 3 * CLASSES
  assert objective_of("hard").training_flops(SIDE) == 6 * macs + 2 * macs


# --- steps ---


def taken(mesh=steps.ONE, accumulation=1):
  some = [batch(seed) for seed in range(2)]
  return run(some, objective_of("soft"), side=SIDE, mesh=mesh, accumulation=accumulation)


@functools.cache
def alone():
  return taken()


def test_steps_are_the_same_on_several_devices_and_in_parts():
  divided = taken(steps.mesh_of(data=2, fsdp=4), accumulation=2)
  for actual, wanted in zip(divided, alone(), strict=True):
    chex.assert_trees_all_close(actual, wanted, rtol=1e-5, atol=1e-6)


def test_steps_leave_the_teacher_as_it_is_and_out_of_the_optimizer():
  (first, *_, last), _ = alone()
  chex.assert_trees_all_equal(last.extra["teacher"], TEACHER.params)
  assert not np.array_equal(first.params["head"]["kernel"], last.params["head"]["kernel"])
  chex.assert_trees_all_equal_structs(last.ema, last.params)
  count = len(jax.tree.leaves(last.params))
  assert len(jax.tree.leaves((last.params, last.ema, last.optimizer))) == 3 * count


def test_an_update_that_is_not_finite_is_skipped():
  spoiled = jax.tree.map(lambda x: np.full_like(x, np.nan), TEACHER.params)
  objective = dataclasses.replace(objective_of("soft"), teacher=Given(TEACHER.module, spoiled))
  (before, after), (metrics,) = run([batch()], objective, side=SIDE)
  assert metrics["skipped"] == 1
  chex.assert_trees_all_equal(after.params, before.params)


# --- a run ---

NAMES = tuple("0123456789")


def save(path, names=NAMES, side=16, **fields):
  """Weights of a model, with a card."""
  module = models.create("ViT-Ti/4", depth=1, width=8, mlp_dim=8, heads=2, num_classes=len(names))
  pixels = np.zeros((1, side, side, 3), np.float32)
  params = modules.parameters(module, pixels, train=False)
  card = Card(image_size=side, class_names=names, **fields)
  weights.write(path, weights.Weights(params, card))
  return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  """Weights of teachers."""
  place = tmp_path_factory.mktemp("teachers")
  save(place / "w.npz", names=NAMES[::-1])
  save(place / "large.npz", side=32, resampling="torchvision_bicubic")
  save(place / "few.npz", names=("a", "b"))
  save(place / "others.npz", names=tuple("abcdefghij"))
  save(place / "sigmoid.npz", loss="sigmoid")
  other = weights.load(place / "w.npz")
  other["head"]["bias"] += 1
  weights.save(place / "changed.npz", other)
  grey = weights.load(place / "w.npz")
  grey["embedding"]["kernel"] = grey["embedding"]["kernel"][:, :, :1]
  weights.save(place / "grey.npz", grey)
  del other["head"]
  weights.save(place / "headless.npz", other)
  return place


def asking(path: pathlib.Path, *words):
  return (
    "--config.objective.kind=distillation",
    f"--config.objective.teacher={path}",
    "--config.duration.steps=4",
    "--config.duration.epochs=0",
    "--config.evaluate.test.source=",
    "--config.objective.target=soft",
    *words,
  )


@pytest.mark.usefixtures("one_device")
def test_a_run_resumes_to_the_same_bits_with_the_same_teacher(folder, tmp_path, capsys):
  whole, parts = tmp_path / "whole", tmp_path / "parts"
  start = f"--config.init_from={folder}/w.npz"  # the student begins as the teacher
  often = "--config.checkpoint.every.steps=2", "--config.verify_every=2"
  assert program.run(whole, *asking(folder / "w.npz", start), *often)
  found = checkpoint.read_meta(checkpoint.find(whole))
  objective = found["config"]["objective"]
  assert objective["outputs"] == [*range(9, -1, -1)]  # compared by name
  assert not any("teacher" in name for name in found["arrays"])
  lines = [line for line in metrics_log.read_lines(whole) if "loss" in line]
  assert lines[0]["training/agreement"] == 1
  assert abs(lines[0]["training/teacher_loss"]) < 1e-5 < lines[-1]["training/teacher_loss"]
  ends.copy_as_stopped(whole, parts, step=2)
  message = rf"changed\.npz is not the teacher .* checksum \w+, not {objective['digest']}\. Give"
  with pytest.raises(c.ConfigError, match=message):
    program.run(parts, *asking(folder / "changed.npz", start))
  moved = shutil.copy(folder / "w.npz", tmp_path / "moved.npz")
  shutil.copy(folder / "w.npz.json", tmp_path / "moved.npz.json")
  assert program.run(parts, *asking(moved, start), *often)
  said = capsys.readouterr().out
  assert all(f"Step {step} was computed twice" in said for step in (1, 3))
  chex.assert_trees_all_equal(*(ends.final_state(one, 4)[0] for one in (whole, parts)))


def test_the_recipe_prepares_images_as_the_teacher_expects_them(folder):
  config = recipes.resolve(f"configs/distill.py:{folder}/large.npz,digits", [])
  assert (config.data.image_size, config.data.resampling) == (32, "torchvision_bicubic")
  words = ["data.image_size", "data.resampling"]
  assert {key: dict(config.origins)[key] for key in words} == dict.fromkeys(words, "the teacher")
  assert config.objective == Settings(teacher=f"{folder}/large.npz")
  with pytest.raises(c.ConfigError, match=r"'w\.npz' is not TEACHER,DATA"):
    recipes.resolve("configs/distill.py:w.npz", [])


# --- refusals ---


@pytest.mark.parametrize(
  ("teacher", "changes", "message"),
  [
    ("", {}, r"distillation needs a teacher; name its weights with --config\.objective\.teacher"),
    ("missing.npz", {}, r"objective\.teacher=.*missing\.npz: .*does not exist"),
    ("headless.npz", {}, r"headless\.npz: these weights have no head; fine-tune them"),
    (
      "large.npz",
      {},
      r"images of 32 pixels, and the student's have 16; give .*image_size=32\.",
    ),
    ("few.npz", {}, r"has 2 classes, and the training data has 10; give a teacher"),
    ("few.npz", dict(outputs=()), r"has 2 classes, and the training data has 10; give a teacher"),
    ("others.npz", {}, r"of other classes than the training data: .*'a'.*outputs='\(\)' for the"),
    ("sigmoid.npz", dict(target="soft"), r"no temperature in common; give .*target=hard"),
    ("w.npz", dict(outputs=(0, 0, 1)), r"outputs=\(0, 0, 1\) does not name each of the 10 outputs"),
    ("grey.npz", {}, r"images of 1 channels, and the student's have 3; give .*channels=1"),
    ("w.npz", dict(temperature=2.0), r"temperature=2\.0 has no effect with .*target='hard'"),
  ],
)
def test_what_does_not_suit_is_refused(folder, teacher, changes, message):
  place = str(folder / teacher) if teacher else ""
  config = c.Config(
    objective=Settings(teacher=place, **changes),
    model=c.Model(name="ViT-Ti/4", num_classes=10),
    data=c.Data(train=c.Dataset("digits", "train"), image_size=16),
  )
  known = dict(images=1437, side=8, labels=Labels(NAMES))
  with pytest.raises(c.ConfigError, match=message):
    resolved.checks.check(config, resolved.without_data(config, **known))


def test_a_teacher_is_read_again_when_other_weights_are_in_its_place(folder, tmp_path, monkeypatch):
  """As by a second run in one Python process; also a name that another folder's weights have."""
  first, second = (teachers.read(str(folder / name)) for name in ("w.npz", "changed.npz"))
  assert first.digest != second.digest
  assert teachers.read(str(folder / "changed.npz")) is second
  (tmp_path / "other").mkdir()
  for name, place in (("w.npz", tmp_path), ("changed.npz", tmp_path / "other")):
    shutil.copy(folder / name, place / "w.npz")
    shutil.copy(folder / "w.npz.json", place)
  monkeypatch.chdir(tmp_path)
  assert teachers.read("w.npz").digest == first.digest
  monkeypatch.chdir(tmp_path / "other")
  assert teachers.read("w.npz").digest == second.digest
  place = str(tmp_path / "w.npz")
  assert teachers.read(place).digest == first.digest
  shutil.copy(tmp_path / "other" / "w.npz", place)
  assert teachers.read(place).digest == second.digest
  save(tmp_path / "w.npz", names=tuple("abcdefghij"))
  assert teachers.read(place).loaded.card.class_names == tuple("abcdefghij")


def test_a_run_that_teaches_is_read_again_when_it_has_gone_on(tiny_run, tmp_path):
  place = shutil.copytree(tiny_run, tmp_path / "run")
  first = teachers.read(str(place))
  assert teachers.read(str(place)) is first
  checkpoints = place / "checkpoints"
  shutil.copytree(checkpoints / "5", checkpoints / "6")
  again = teachers.read(str(place))
  assert (again is first, again.digest) == (False, first.digest)


def test_a_teacher_that_changes_at_the_start_of_a_run_is_refused(folder):
  config = c.Config(
    objective=Settings(teacher=str(folder / "changed.npz"), digest="0"),
    model=c.Model(name="ViT-Ti/4", num_classes=10),
    data=c.Data(train=c.Dataset("digits", "train"), image_size=16),
  )
  with pytest.raises(c.ConfigError, match=r"is not the teacher that the run began with"):
    config.objective.configured(config, models.create("ViT-Ti/4", num_classes=10))


@pytest.mark.parametrize("before", ["labels", "start"])
def test_a_teacher_that_goes_on_training_is_the_one_that_the_run_began_with(
  folder, tmp_path, monkeypatch, before
):
  """Whenever other weights lie in its place: before the labels are read, or before the start."""
  for name in ("w.npz", "w.npz.json"):
    shutil.copy(folder / name, tmp_path)
  monkeypatch.chdir(tmp_path)
  config = c.Config(
    objective=Settings(teacher="w.npz"),
    model=c.Model(name="ViT-Ti/4", num_classes=10),
    data=c.Data(train=c.Dataset("digits", "train"), image_size=16),
  )
  given = weights.load("w.npz")

  def go_on():
    shutil.copy(folder / "changed.npz", tmp_path / "w.npz")

  def labels(_):
    if before == "labels":
      go_on()
    return Labels(NAMES)

  found = resolve(config, {"labels": labels})
  go_on()
  assert found.objective.outputs == (*range(9, -1, -1),)
  model = models.create("ViT-Ti/4", num_classes=10)
  found.objective.check(found, model)
  chex.assert_trees_all_equal(found.objective.configured(found, model).teacher.params, given)
  assert resolve(config, {}).objective.digest != found.objective.digest  # of the next run
  with pytest.raises(c.ConfigError, match="is not the teacher that the run began with"):
    found.objective.check(found, model)  # as in another process


def test_what_the_teacher_was_trained_on_counts_for_the_student(tmp_path):
  known = datasets.Trained(c.Dataset("digits", "train"), "sum")
  place = str(save(tmp_path / "w.npz", trained_on=(known,)))
  config = c.Config(init_from=place, objective=Settings(teacher=place))
  new = start.Recorded(tmp_path)
  assert start.trained_on(config, new) == (known,)
  assert start.trained_on(dataclasses.replace(config, init_from=""), new) == (known,)


def test_what_a_teacher_of_later_steps_was_trained_on_counts_too(tmp_path):
  """A run may begin without a teacher, and the record of those steps does not know it."""
  first, taught = (datasets.Trained(c.Dataset("digits", part), "sum") for part in ("[:9]", "[9:]"))
  place = str(save(tmp_path / "w.npz", trained_on=(first, taught)))
  alone = c.Config()
  run = start.Recorded(tmp_path, 5, {"seed": 0}, trained_on=(first,))
  assert start.trained_on(alone, run) == (first,)
  config = dataclasses.replace(alone, objective=Settings(teacher=place))
  assert start.trained_on(config, run) == (first, taught)


def test_others_under_other_names_may_be_given_by_their_order(folder):
  config = c.Config(
    objective=Settings(teacher=str(folder / "others.npz"), outputs=()),
    model=c.Model(name="ViT-Ti/4", num_classes=10),
    data=c.Data(train=c.Dataset("digits", "train"), image_size=16),
  )
  known = dict(images=1437, side=8, labels=Labels(NAMES))
  resolved.checks.check(config, resolved.without_data(config, **known))


def test_images_with_several_labels_are_refused():
  with pytest.raises(c.ConfigError, match=r"those of birds have any number; give .*classification"):
    Settings(teacher="w.npz").check_labels("birds", True)
