"""Training some of the parameters: the others keep their bits, and cost neither memory nor work."""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax

from tests import modules, resolved
from tests.ends import copy_as_stopped
from tests.golden import weights as golden
from tests.learning import steps
from tests.learning.steps import BATCHES, ONE, changed, mesh_of
from tests.seams.program import StopAfter
from vit_jax import config as c
from vit_jax import launch, models
from vit_jax.devices import mesh as meshes
from vit_jax.devices.chips import CHIPS, Chip
from vit_jax.evaluation import evaluate, evaluated_model
from vit_jax.evaluation.classification import Classification as Scored
from vit_jax.learning import optim, train_step
from vit_jax.learning.classification import Classification
from vit_jax.learning.optimizers.sgd import SGD
from vit_jax.storage import checkpoint, metrics_log
from vit_jax.storage.tree import flatten, nest
from vit_jax.training import init_from
from vit_jax.training.facts import of_devices

LAST = "Transformer/encoderblock_1/.*|head/.*"
CONFIG = changed(steps.CONFIG, model=dict(depth=2))
PARTIAL = changed(CONFIG, optimizer=dict(trainable=LAST, ema=0.75))
PROBE = changed(CONFIG, optimizer=dict(trainable="head/.*"))
RATE = optim.learning_rate_schedule(
  learning_rate=0.01, warmup_steps=0, total_steps=10, decay="constant", end_learning_rate=0
)


def start(config, mesh=ONE):
  """A state in which no parameter is 0, so that every array could change; and the step."""
  objective = Classification(models.configured(config.model))
  settings = config.optimizer
  optimizer = optim.make(settings)
  init = functools.partial(
    train_step.init_state,
    objective,
    optimizer,
    seed=0,
    image_size=16,
    with_ema=bool(settings.ema),
    trainable=settings.trainable,
  )
  abstract = train_step.abstract_state(init, mesh)
  fresh = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), abstract)
  params = nest(golden.make({name: x.shape for name, x in flatten(abstract.params).items()}))
  ema = optim.partition(params, settings.trainable) if settings.ema else None
  fresh = dataclasses.replace(fresh, params=params, ema=ema)
  made = train_step.make(
    objective, optimizer, RATE, settings, seed=0, accumulation=config.accumulation
  )
  return jax.device_put(fresh, jax.tree.map(lambda x: x.sharding, abstract)), jax.jit(made)


def run(config, mesh=ONE):
  """The state before and after three steps, and their metrics."""
  first, step = start(config, mesh)
  current, history = first, []
  for one in BATCHES[:3]:
    current, metrics = step(current, jax.device_put(one, meshes.batch_sharding(mesh)))
    history.append(jax.device_get(metrics))
  return jax.device_get(first), jax.device_get(current), history


@functools.cache
def partial_run():
  return run(PARTIAL)


@functools.cache
def probe():
  """The state before, and the lowered step, of a linear probe."""
  first, step = start(PROBE)
  return first, step.lower(first, BATCHES[0])


def test_frozen_parameters_keep_their_bits_and_all_others_move():
  stacked = changed(PARTIAL, model=dict(scan=True), optimizer=dict(trainable="Transformer/enc.*"))
  for (first, last, _), trained in (
    (partial_run(), ("Transformer/encoderblock_1/", "head/")),
    (run(stacked), ("Transformer/enc",)),
  ):
    before, after = flatten(first.params), flatten(last.params)
    for name in before:
      equal = np.array_equal(before[name], after[name])
      assert equal != name.startswith(trained), name


def test_moments_and_averages_are_those_of_the_trained_alone():
  first, last, _ = partial_run()
  trained = optim.partition(first.params, LAST)
  names = set(checkpoint.describe(trained))
  assert {name.split("/")[0] for name in names} == {"Transformer", "head"}
  adam = last.optimizer[1]
  assert set(checkpoint.describe(adam.mu)) == set(checkpoint.describe(adam.nu)) == names
  assert set(checkpoint.describe(last.ema)) == names
  seen = flatten(train_step.for_evaluation(last))
  for name, array in flatten(last.params).items():
    assert np.array_equal(seen[name], array) == (name not in names), name


def test_on_eight_devices_and_in_parts_as_on_one_and_at_once():
  _, wanted, wanted_history = partial_run()
  first, last, history = run(changed(PARTIAL, accumulation=2), mesh_of(2, 4))
  chex.assert_trees_all_close(last.params, wanted.params, atol=2e-5)
  chex.assert_trees_all_close(history, wanted_history, rtol=2e-5, atol=1e-6)
  before, after = flatten(first.params), flatten(last.params)
  for name in before.keys() - set(checkpoint.describe(last.ema)):
    np.testing.assert_array_equal(before[name], after[name])


def test_a_linear_probe_is_logistic_regression_on_fixed_features():
  first, step = probe()
  one = BATCHES[0]
  images = (np.float32(one["image"]) - 127.5) / 127.5
  _, features = modules.run(models.configured(PROBE.model), first.params, images)
  x = np.float64(features["pre_logits"])
  kernel, bias = (np.float64(first.params["head"][name]) for name in ("kernel", "bias"))
  logits = x @ kernel + bias
  shares = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
  error = (shares - np.eye(5)[one["labels"]]) * one["mask"][:, None] / one["mask"].sum()
  grads = {"kernel": x.T @ error, "bias": error.sum(axis=0)}
  norm = np.sqrt(sum((g**2).sum() for g in grads.values()))
  after, metrics = step.compile()(first, one)
  np.testing.assert_allclose(metrics["grad_norm"], norm, rtol=1e-4)
  for name, decay in (("kernel", 0.1), ("bias", 0.0)):
    # Adam's first step, with the clipping at 1 and the epsilon of the config.
    clipped = grads[name] / max(norm, 1.0)
    moved = clipped / (np.abs(clipped) + 1e-3) + decay * np.float64(first.params["head"][name])
    wanted = np.float64(first.params["head"][name]) - 0.01 * moved
    np.testing.assert_allclose(after.params["head"][name], wanted, rtol=1e-4, atol=1e-6)
  moved = optax.tree.norm(jax.tree.map(jnp.subtract, after.params["head"], first.params["head"]))
  np.testing.assert_allclose(metrics["update_norm"], moved, rtol=1e-5)


def test_no_gradient_is_computed_for_what_is_frozen():
  """A whole step costs about three forward passes; a linear probe's costs little more than one."""
  first, step = start(CONFIG)
  whole = step.lower(first, BATCHES[0])
  flops = [program.cost_analysis()["flops"] for program in (probe()[1], whole)]
  assert 0.3 < flops[0] / flops[1] < 0.4


def test_weights_are_put_into_a_partial_average_too():
  first, _ = start(PARTIAL)
  read = jax.tree.map(lambda x: np.array(x) + 1, first.params)
  initial, objective = init_from.Initial(read, ""), Classification(models.configured(PARTIAL.model))
  put = init_from.put(initial, first, objective, optim.make(PARTIAL.optimizer), LAST)
  chex.assert_trees_all_equal(jax.device_get(put.params), read)
  chex.assert_trees_all_equal(jax.device_get(put.ema), optim.partition(read, LAST))


DIGITS = resolved.config(
  batch_size=32,
  duration=c.Duration(steps=6),
  evaluate_every=c.Duration(),
  checkpoint=c.Checkpoint(every=c.Duration(steps=3)),
  model=c.Model(
    name="ViT-Ti/4",
    depth=2,
    width=16,
    mlp_dim=32,
    heads=2,
    num_classes=10,
    attention="heads_first",
  ),
  optimizer=SGD(trainable=LAST, ema=0.75),
  schedule=c.Schedule(learning_rate=0.3),
  data=c.Data(
    train=c.Dataset("digits", "train"),
    image_size=8,
  ),
  evaluate={"test": Scored("digits", "test")},
)


def test_a_partial_run_resumes_bit_exactly_and_is_evaluated_as_it_was(
  tmp_path, capsys, monkeypatch
):
  monkeypatch.setitem(CHIPS, jax.devices()[0].device_kind, Chip(1e12, 1, None, 1.0))
  made = resolved.run(DIGITS, jax.devices()[:1])
  assert launch.train(made, tmp_path / "whole", StopAfter())
  assert "(2,394 of them trained)" in capsys.readouterr().out
  copy_as_stopped(tmp_path / "whole", tmp_path / "parts", step=3)
  assert launch.train(made, tmp_path / "parts", StopAfter())
  ends = [checkpoint.find(tmp_path / name) for name in ("whole", "parts")]
  for ema in (False, True):
    chex.assert_trees_all_equal(*(checkpoint.load_params(end, ema=ema) for end in ends))
  stored = [flatten(checkpoint.load_params(ends[0], ema=ema)) for ema in (False, True)]
  assert stored[0].keys() == stored[1].keys()
  same = {name for name in stored[0] if np.array_equal(stored[0][name], stored[1][name])}
  assert same == set(stored[0]) - set(checkpoint.describe(made.abstract.ema))
  assert not any("mfu" in line for line in metrics_log.read_lines(tmp_path / "whole"))
  opened = made.data.evaluations
  read = evaluated_model.read_evaluated(
    DIGITS, opened, tmp_path / "parts", frozenset(), of_devices()
  )
  metrics = evaluate.evaluate(read, opened, made.reader, tmp_path / "parts", stall_seconds=0.0)
  assert metrics.items() <= metrics_log.read_lines(tmp_path / "whole")[-1].items()
  restored = checkpoint.load(ends[0], made.abstract)
  chex.assert_trees_all_equal_structs(restored, made.abstract)
