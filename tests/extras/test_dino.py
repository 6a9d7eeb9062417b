"""DINO: loss, centre, teacher and schedules against NumPy, distortions, collapse, and a run."""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests import ends, reference, resolved
from tests.learning import steps
from tests.seams import program
from vit_jax import config as c
from vit_jax import models, recipes, registry
from vit_jax.config import ConfigError, View
from vit_jax.config.fields import name_of_kind
from vit_jax.data.batches import train_transform
from vit_jax.devices import mesh as meshes
from vit_jax.extras.dino import head
from vit_jax.extras.dino.distortion import Distortion, hue
from vit_jax.extras.dino.objective import Settings, at_grid, deviation
from vit_jax.extras.experiments import step_program
from vit_jax.extras.verification import verification
from vit_jax.learning import optim, train_step
from vit_jax.learning.objective import OBJECTIVE_PARAMS
from vit_jax.learning.optimizers.adam import Adam
from vit_jax.learning.optimizers.schedule_free import ScheduleFree
from vit_jax.recipes import cost
from vit_jax.storage import checkpoint, metrics_log, workdir
from vit_jax.weights import load

SIZE, LARGE, SMALL, OUTPUTS, TOTAL = 16, 16, 8, 24, 8
SETTINGS = Settings(
  **dict(local_crops=2, local_side=SMALL, temperature_warmup=0.5, frozen_prototypes=0.2),
  **dict(head_hidden=12, head_bottleneck=8, head_outputs=OUTPUTS),
)
OPTIMIZER = Adam(
  **dict(weight_decay=0.04, end_weight_decay=0.4, epsilon=1e-3),
  **dict(ema=0.5, end_ema=1.0, ema_corrected=False),
)
CONFIG = resolved.config(
  objective=SETTINGS,
  model=c.Model(name="ViT-Ti/4", depth=1, width=16, mlp_dim=16, heads=2, num_classes=1),
  optimizer=OPTIMIZER,
  data=c.Data(image_size=LARGE),
)
OBJECTIVE = SETTINGS.configured(CONFIG, models.configured(CONFIG.model))


def batch(seed=0, broken=(3,)):
  rng = np.random.default_rng(seed)
  crops = lambda *shape: rng.integers(0, 256, (SIZE, *shape, 3), np.uint8)
  mask = np.ones(SIZE, np.float32)
  mask[list(broken)] = 0
  large = {name: crops(LARGE, LARGE) for name in ("global_1", "global_2")}
  return large | dict(local=crops(2, SMALL, SMALL), mask=mask)


# --- the formulas ---


def test_the_head_against_numpy():
  sizes = dict(inputs=6, hidden=12, bottleneck=8, outputs=OUTPUTS)
  params = jax.tree.map(
    lambda x: np.random.default_rng(x.size).normal(size=x.shape),
    jax.eval_shape(lambda: head.init(jax.random.key(0), **sizes)),
  )
  x = y = np.random.default_rng(0).normal(size=(5, 6))
  for name in head.LAYERS:
    y = y @ params[name]["kernel"] + params[name]["bias"]
    if name != "bottleneck":
      y = np.float64(jax.nn.gelu(y, approximate=False))
  kernel = params["prototypes"]["kernel"]
  wanted = y @ kernel / np.linalg.norm(y, axis=-1, keepdims=True) / np.linalg.norm(kernel, axis=0)
  found = head.outputs(jax.tree.map(jnp.float32, params), jnp.float32(x), jnp.float32)
  np.testing.assert_allclose(found, wanted, atol=2e-6)
  assert head.macs(**sizes) == 6 * 12 + 12 * 12 + 12 * 8 + 8 * OUTPUTS


def test_prototypes_begin_as_small_as_in_the_authors_code():
  """There PyTorch draws them, uniformly up to 1 / sqrt(inputs); Adam turns larger ones slower."""
  params = head.init(jax.random.key(0), inputs=2, hidden=2, bottleneck=100, outputs=50)
  kernel = params["prototypes"]["kernel"]
  assert 0.099 < jnp.abs(kernel).max() <= 0.1
  assert float(kernel.std()) == pytest.approx(0.1 / 3**0.5, rel=0.03)


def test_the_deviation_of_features():
  rng = np.random.default_rng(0)
  features, mask = rng.normal(size=(9, 4)), np.float32([1, 1, 0, 1, 1, 1, 0, 1, 1])
  unit = (features / np.linalg.norm(features, axis=1, keepdims=True))[mask > 0]
  wanted = np.sqrt(np.sum(unit.var(axis=0)))
  assert deviation(jnp.float32(features), mask) == pytest.approx(wanted, rel=1e-5)
  assert deviation(jnp.ones((9, 4)) * mask[:, None], mask) == pytest.approx(0, abs=1e-3)


loss_of_part = jax.jit(OBJECTIVE.loss)


@pytest.mark.parametrize("images", range(4))
def test_a_part_of_less_than_two_images_tells_no_deviation(images):
  """Nor does it spoil that of other parts, and a run with such parts alone warns of no collapse."""
  one = batch(broken=[*range(images, SIZE)])
  part = {name: array[:4] for name, array in one.items()}
  state, _ = started()
  extra = OBJECTIVE.seen(state.extra, state.ema, jnp.float32(0))
  sums = loss_of_part(state.params, extra, part, jax.random.key(0))
  total, count = map(float, sums.metrics["feature_std"])
  assert count == (images if images > 1 else 0)
  assert (total == 0) == (images < 2)
  alone = {"training/feature_std": float("nan"), "training/teacher_entropy": 2.0}
  assert OBJECTIVE.warning(alone) == ""


def test_positions_of_small_crops_are_those_of_the_places_of_the_table():
  """A table that is linear in row and column stays linear inside, apart from the border."""
  rows, columns = np.mgrid[:14, :14] + 0.5
  table = np.float32(np.stack([rows, columns], axis=-1).reshape(1, 196, 2))
  table = np.pad(table, ((0, 0), (1, 0), (0, 0)))
  params = {"Transformer": {"posembed_input": {"pos_embedding": table}}}
  found = at_grid(params, (14, 14), (6, 6))["Transformer"]["posembed_input"]["pos_embedding"]
  assert found.shape == (1, 37, 2)
  places = (np.arange(6) + 0.5) * 14 / 6.1
  np.testing.assert_allclose(np.reshape(found[0, 1:], (6, 6, 2))[1:5, 2, 0], places[1:5], atol=0.06)


# --- steps ---


@functools.cache
def started(data=1, fsdp=1, parts=1):
  """The first state, and the compiled step."""
  optimizer, mesh = optim.make(OPTIMIZER), steps.mesh_of(data, fsdp)
  init = functools.partial(
    train_step.init_state, OBJECTIVE, optimizer, seed=0, image_size=LARGE, with_ema=True
  )
  abstract = train_step.abstract_state(init, mesh)
  made = train_step.make(
    *(OBJECTIVE, optimizer, lambda _: 0.01, OPTIMIZER), seed=0, accumulation=parts, total=TOTAL
  )
  step = jax.jit(meshes.on(mesh, made))
  put = lambda one: jax.device_put(one, meshes.batch_sharding(mesh))
  return steps.created(init, abstract), lambda state, one: step(state, put(one))


BATCHES = [batch(seed) for seed in range(3)]


@functools.cache
def alone():
  """The states before and after each batch, and the metrics."""
  state, step = started()
  states, history = [state], []
  for one in BATCHES:
    state, metrics = step(state, one)
    states.append(state)
    history.append(metrics)
  return states, jax.device_get(history)


def own(params):
  return params[OBJECTIVE_PARAMS]["prototypes"]["kernel"]


outputs = jax.jit(OBJECTIVE._outputs)


def in_numpy(before, one, temperature):
  """Mean of the teacher's outputs, and loss and metrics from those of both models, in float64."""
  kept = one["mask"] > 0
  large = np.stack([one["global_1"], one["global_2"]], axis=1)
  features, taught = (np.float64(x)[kept] for x in outputs(before.ema, large))
  students = [outputs(before.params, crops)[1] for crops in (large, one["local"])]
  students = np.concatenate(students, axis=1, dtype=float)[kept]
  targets = reference.softmax((taught - before.extra["centre"]) / temperature)
  told = np.log(reference.softmax(students / 0.1))
  pairs = [(i, j) for i in range(2) for j in range(4) if i != j]
  unit = features[:, 0] / np.linalg.norm(features[:, 0], axis=-1, keepdims=True)
  return taught.mean(axis=(0, 1)), {
    "loss": np.mean([-np.sum(targets[:, i] * told[:, j], axis=-1) for i, j in pairs]),
    "training/teacher_entropy": -np.sum(targets * np.log(targets), axis=-1).mean(),
    "training/feature_std": np.sqrt(np.sum(unit.var(axis=0))),
  }


def test_loss_teacher_centre_temperature_and_schedules_against_numpy():
  states, history = alone()
  for i, (before, after, metrics) in enumerate(zip(states, states[1:], history, strict=False)):
    progress = i / TOTAL
    falling = (1 + np.cos(np.pi * progress)) / 2
    momentum = 1 + (0.5 - 1) * falling
    follow = lambda old, new, m=momentum: m * np.float64(old) + (1 - m) * np.float64(new)
    wanted = jax.tree.map(follow, before.ema, after.params)
    chex.assert_trees_all_close(after.ema, wanted, atol=1e-6)
    assert metrics["weight_decay"] == pytest.approx(0.4 + (0.04 - 0.4) * falling, rel=1e-5)
    temperature = 0.04 + (0.07 - 0.04) * min(progress / 0.5, 1)
    taught, wanted = in_numpy(before, BATCHES[i], temperature)
    centre = follow(before.extra["centre"], taught, 0.9)
    np.testing.assert_allclose(after.extra["centre"], centre, atol=1e-6)
    chex.assert_trees_all_close({name: metrics[name] for name in wanted}, wanted, rtol=1e-5)


def test_prototypes_stay_at_first_while_their_moments_follow_the_gradient():
  (first, *_, third, last), _ = alone()
  np.testing.assert_array_equal(own(third.params), own(first.params))  # fixed for 1.6 steps
  assert abs(own(last.params) - own(first.params)).max() > 1e-3
  assert own(optax.tree.get(third.optimizer, "mu")).any()


@pytest.mark.parametrize("rule", [OPTIMIZER, ScheduleFree()], ids=lambda rule: rule.kind)
def test_prototypes_do_not_jump_when_they_are_trained_at_last(rule):
  """Neither do the sequences of schedule-free AdamW, one of which is the teacher."""
  params = {OBJECTIVE_PARAMS: {"prototypes": {"kernel": jnp.float32([-0.3, 0.1, 0.7])}}}
  gradient = jax.tree.map(jnp.sign, params)
  chain, rate, before = optim.make(rule), 0.01, own(params)
  zero = jnp.int32(0)
  state = train_step.TrainState(zero, params, chain.init(params), params, {}, zero, zero)
  for number in range(10):
    after, optimizer, average = train_step.updated(
      *(OBJECTIVE, chain, rule, state, state.params, gradient),
      dict(learning_rate=rate, grad_norm=1.0),
      number / 10,
    )
    moved = abs(own(after) - own(state.params))
    assert moved.max() == 0 if number < 2 else 0 < moved.max() < 1.1 * rate
    if number < 2:
      np.testing.assert_allclose(own(average), before, rtol=1e-6)
    state = dataclasses.replace(state, params=after, optimizer=optimizer, ema=average)


def test_it_is_updated_alike_on_several_devices_and_in_parts():
  state, step = started(data=2, fsdp=4, parts=2)
  for one in BATCHES[:2]:
    state, metrics = step(state, one)
  (*_, wanted, _), (_, expected, _) = jax.device_get(alone())
  chex.assert_trees_all_close(jax.device_get(state), wanted, rtol=1e-4, atol=2e-5)
  assert metrics["loss"] == pytest.approx(expected["loss"], rel=1e-4)


def test_nothing_moves_where_the_update_is_skipped():
  states, _ = alone()
  _, step = started()
  spoiled = dataclasses.replace(states[1], extra={"centre": states[1].extra["centre"] + np.nan})
  after, _ = step(spoiled, BATCHES[1])
  assert after.skipped == 1
  chex.assert_trees_all_equal((after.params, after.ema), (states[1].params, states[1].ema))


def test_a_device_that_computes_wrongly_is_looked_for():
  devices = jax.devices()[:2]
  data = dataclasses.replace(CONFIG.data, train=c.Dataset("digits", "train"))
  run = resolved.run(dataclasses.replace(CONFIG, batch_size=SIZE, data=data), devices)
  placed = jax.device_put(BATCHES[0], meshes.batch_sharding(run.mesh))
  state = train_step.create_state(run.init, run.abstract)
  assert not verification.search(run, state, placed).any()


# --- distortions ---


def test_distortions_come_as_often_as_they_should():
  kind = Distortion(blur=0.1, solarize=0.2, radius=3.0)
  names = []
  radii = []
  for seed in range(2000):
    drawn = kind.draw(np.random.default_rng(seed), 8)
    names.append([getattr(operation, "func", operation).__name__ for operation in drawn])
    radii += [operation.keywords["radius"] for operation in drawn if "blur" in str(operation)]
  for name, share in dict(brightness=0.8, hue=0.8, grey=0.2, blur=0.1, solarize=0.2).items():
    found = np.mean([name in each for each in names])
    assert found == pytest.approx(share, abs=4 * (share * (1 - share) / 2000) ** 0.5), name
  assert 0.15 <= min(radii) < 0.25 < 2.9 < max(radii) <= 3.0
  assert np.mean(radii) == pytest.approx(1.575, abs=0.25)
  order = [each.index("hue") for each in names if "hue" in each]
  assert np.allclose(np.bincount(order) / len(order), 0.25, atol=0.05)


def test_the_hue_is_turned_and_turned_back():
  pixels = np.tile(np.uint8([200, 60, 60]), (4, 4, 1))
  np.testing.assert_array_equal(hue(pixels, 0.0), pixels)
  red, green, blue = hue(pixels, 1 / 3)[0, 0].astype(int)
  assert green > max(red, blue) + 100
  assert abs(hue(hue(pixels, 0.1), -0.1).astype(int) - pixels).max() < 6


def test_views_have_their_sizes_areas_and_distortions():
  data = resolved.data(image_size=224, crop_area=(0.4, 1.0))
  views = Settings().views(data)
  sides = {name: (of.image_size, of.crop_area, count) for name, (of, count) in views.items()}
  large = (224, (0.4, 1.0), 0)
  assert sides == dict(global_1=large, global_2=large, local=(96, (0.05, 0.4), 8))
  found = [(view.data.augment[-1].blur, view.data.augment[-1].solarize) for view in views.values()]
  assert found == [(1.0, 0.0), (0.1, 0.2), (0.5, 0.0)]
  assert {view.data.augment[-1].radius for view in views.values()} == {2.0}
  smaller = Settings().views(dataclasses.replace(data, image_size=(28, 14)))
  assert {view.data.augment[-1].radius for view in smaller.values()} == {0.25}


# --- settings, collapse ---


@pytest.mark.parametrize(
  ("changes", "words"),
  [
    (
      dict(optimizer=Adam(ema=0.0)),
      r"its teacher, and there is none; give --config\.optimizer\.ema",
    ),
    (dict(objective=Settings(local_side=10)), "local_side=10 is not divisible"),
    (dict(objective=Settings()), r"local_side=96 is larger .* 16 pixels; give .*local_side=8\."),
    (
      dict(objective=Settings(local_area=(0.4, 0.1))),
      r"config\.objective\.local_area=\(0\.4, 0\.1\)",
    ),
    *(
      (
        dict(data=dataclasses.replace(CONFIG.data, **{key: 2})),
        f"config.data.{key}=2 has no effect",
      )
      for key in ("train_resize", "train_resize_ratio", "train_pad")
    ),
    (
      dict(model=dataclasses.replace(CONFIG.model, channels=1), objective=SETTINGS),
      "distorts colours, and config.model.channels=1; give --config.objective.kind=mae",
    ),
    (
      dict(model=dataclasses.replace(CONFIG.model, positions="relative"), objective=SETTINGS),
      "pos_embedding_relative of ViT-Ti/4 is for one",
    ),
  ],
)
def test_settings_without_sense_are_refused(changes, words):
  config = dataclasses.replace(CONFIG, **changes)
  with pytest.raises(ConfigError, match=words):
    config.objective.check(config, models.configured(config.model))


@pytest.mark.parametrize(
  ("spread", "entropy", "words"),
  [
    (0.5, 2.0, ""),
    (0.01, 2.0, "training/feature_std=0.01: "),
    (0.5, 3.177, "teacher_entropy=3.177 "),
  ],
)
def test_a_collapse_is_named(spread, entropy, words):
  metrics = {"training/feature_std": spread, "training/teacher_entropy": entropy}
  found = OBJECTIVE.warning(metrics)
  assert bool(found) == bool(words)
  assert words in found
  assert "collapse" in found or not words


# --- a run ---

WORDS = (
  "--config.objective.kind=dino",
  *(f"--config.objective.head_{key}" for key in ("hidden=8", "bottleneck=8", "outputs=24")),
  *(f"--config.objective.local_{key}" for key in ("crops=2", "side=8")),
  "--config.evaluate.test.source=",  # it trains no head
  "--config.data.train.label_key=",
  *("--config.optimizer.ema=0.5", "--config.optimizer.ema_corrected=False"),
  *("--config.optimizer.end_ema=1", "--config.optimizer.end_weight_decay=0.4"),
  *("--config.duration.steps=4", "--config.verify_every=2", "--config.checkpoint.every.steps=2"),
)


@pytest.mark.usefixtures("one_device")
def test_a_stopped_run_goes_on_to_the_same_bits_and_its_weights_are_the_teachers(tmp_path):
  whole, parts = tmp_path / "whole", tmp_path / "parts"
  assert program.run(whole, *WORDS)
  ends.copy_as_stopped(whole, parts, step=2)
  assert program.run(parts, *WORDS)
  (arrays, lines), (others, other_lines) = (ends.final_state(run, 4) for run in (whole, parts))
  chex.assert_trees_all_equal(arrays, others)
  losses = [[x["batch/loss"] for x in each] for each in (lines, other_lines)]
  assert losses[0] == losses[1]
  assert len({*losses[0]}) == 4
  line = [x for x in metrics_log.read_lines(whole) if "loss" in x][-1]
  assert 0 < line["training/feature_std"] < 1
  assert 0 < line["training/teacher_entropy"] < np.log(24)
  teacher = checkpoint.load_params(checkpoint.find(whole), ema=True)
  chex.assert_trees_all_equal(load(whole)["embedding"], teacher["embedding"])
  assert (whole / workdir.IMAGES / "0.png").exists()


def test_its_step_is_planned_without_data():
  config = recipes.resolve("configs/vit_digits.py", (*program.SMALL, *WORDS))
  run = step_program.planned(config, jax.devices()[:2])
  batch = run.abstract_batch()
  shapes = {name: x.shape[1:] for name, x in batch.items()}
  large = (config.data.image_size, config.data.image_size, 3)
  assert shapes == dict(global_1=large, global_2=large, local=(2, 8, 8, 3), mask=())
  arrays = (run.abstract.params, run.abstract.optimizer, run.abstract.ema, run.abstract.extra)
  held = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(arrays))
  assert cost.cost(config, 10)["checkpoint_bytes"] == held


@dataclasses.dataclass(frozen=True)
class Turned(Settings):
  """Whose crops have their bounds the wrong way round."""

  kind: str = name_of_kind("turned", "for this test")

  def views(self, data):
    return {"local": View(data.cropped(SMALL, (0.4, 0.05)))}


def test_crops_of_a_view_are_checked_before_the_data_is_opened(tmp_path, monkeypatch):
  monkeypatch.setitem(registry.OBJECTIVES, "turned", f"{__name__}:Turned")
  words = (*WORDS, "--config.objective.kind=turned", "--config.data.train.source=folder:missing")
  message = r"the images 'local' of config\.objective\.kind=turned: .*crop_area=\(0\.4, "
  with pytest.raises(ConfigError, match=message):
    program.run(tmp_path, *words)


def test_crops_of_a_view_are_crops_whatever_resizes_the_image_elsewhere():
  """train_resize and train_pad would take their place without a word."""
  data = resolved.data(image_size=LARGE, train_resize=20)
  for view in SETTINGS.views(data).values():
    cut = train_transform(view.data)(np.zeros((60, 80, 3), np.uint8), rng=np.random.default_rng(0))
    assert cut.grid == (60, 80)
    assert cut.box.height * cut.box.width < 60 * 80
