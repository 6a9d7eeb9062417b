"""LAMB, Lion, Muon, schedule-free AdamW and layer-wise decay against NumPy in float64.

Every rule that is registered also does to stacked blocks what it does to single ones, and leaves
out what is frozen.
"""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests import resolved
from tests.learning import steps
from vit_jax.config import ConfigError, Model, ObjectiveSettings, Schedule
from vit_jax.learning import optim, train_step
from vit_jax.learning.objective import Objective, Sums
from vit_jax.learning.optim import factors
from vit_jax.learning.optimizers.adam import Adam
from vit_jax.learning.optimizers.lamb import LAMB
from vit_jax.learning.optimizers.lion import Lion
from vit_jax.learning.optimizers.muon import Muon
from vit_jax.learning.optimizers.schedule_free import ScheduleFree
from vit_jax.learning.optimizers.sgd import SGD
from vit_jax.models.stacking import stack_blocks, unstack_blocks
from vit_jax.registry import OPTIMIZERS
from vit_jax.storage.tree import flatten, nest
from vit_jax.training.checks import check_patterns

RULES = [OPTIMIZERS[kind]() for kind in sorted(OPTIMIZERS)]
EACH = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.kind)
STEPS, RATES, DECAY = 5, [0.0, 0.05, 0.1, 0.1, 0.02], 0.3
ATTENTION, MLP = "MultiHeadDotProductAttention_1", "MlpBlock_3/Dense_0"
BLOCK = {
  f"{ATTENTION}/query/kernel": (6, 2, 3),
  f"{ATTENTION}/query/bias": (2, 3),
  f"{ATTENTION}/out/kernel": (2, 3, 6),
  f"{MLP}/kernel": (6, 8),
}
SHAPES = {
  "cls": (1, 1, 6),
  "embedding/kernel": (2, 2, 3, 6),
  **{f"Transformer/encoderblock_{i}/{name}": x for i in range(3) for name, x in BLOCK.items()},
  "Transformer/encoder_norm/scale": (6,),
  "head/kernel": (6, 4),
}


def drawn(seed):
  """An array for each parameter, float64."""
  rng = np.random.default_rng(seed)
  return {name: rng.normal(size=shape) for name, shape in SHAPES.items()}


TREE = nest({name: np.float32(x) for name, x in drawn(0).items()})


@functools.cache
def compiled(config):
  """The rule's first state and its step."""
  chain = optim.make(config)

  def step(params, state, grads, rate):
    norm = optax.tree.norm(grads)
    given = dict(learning_rate=rate, grad_norm=norm, depth=optim.depth_of(params))
    changes, state = chain.update(grads, state, params, **given)
    return jax.tree.map(jnp.add, params, changes), state

  return jax.jit(chain.init), jax.jit(step)


def run(config, params, gradients, rates=RATES):
  """Parameters after the steps and the state; all trees, of float32."""
  init, step = compiled(config)
  params = jax.tree.map(np.float32, params)
  state = init(params)
  for rate, grads in zip(rates, gradients, strict=True):
    params, state = step(params, state, jax.tree.map(np.float32, grads), np.float32(rate))
  return params, state


def ours(config):
  """As `run`, with the drawn parameters and gradients; the parameters flat."""
  params, state = run(config, nest(drawn(0)), [nest(drawn(1 + i)) for i in range(STEPS)])
  return flatten(params), state


def part(arrays):
  """The tree of the head and the last block, with None for what is frozen."""
  return optim.partition(nest(arrays), r"head/.*|.*encoderblock_2/.*")


def trained_of(flat):
  return {name: x for name, x in flat.items() if x is not None}


def decays(name):
  return DECAY * name.endswith("kernel")


def assert_close(actual, expected):
  assert actual.keys() == expected.keys()
  for name, x in expected.items():
    np.testing.assert_allclose(actual[name], x, rtol=2e-4, atol=1e-5, err_msg=name)


def adam(m, v, g, step, epsilon):
  """Moments and direction after this step, counted from 0."""
  m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
  t = step + 1
  return m, v, (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + epsilon)


def test_lamb():
  params, moments = drawn(0), dict.fromkeys(SHAPES, (0, 0))
  for step, rate in enumerate(RATES):
    for name, g in drawn(1 + step).items():
      m, v, u = adam(*moments[name], g, step, 1e-6)
      moments[name] = m, v
      u = u + decays(name) * params[name]
      ratio = np.linalg.norm(params[name]) / np.linalg.norm(u) if decays(name) else 1
      params[name] = params[name] - rate * ratio * u
  assert_close(ours(LAMB(weight_decay=DECAY))[0], params)


def test_lamb_does_not_scale_arrays_of_zeros():
  zeros, ones = {"head": {"kernel": np.zeros((2, 2))}}, {"head": {"kernel": np.ones((2, 2))}}
  params, _ = run(LAMB(), zeros, [ones], [0.1])
  np.testing.assert_allclose(params["head"]["kernel"], -0.1, rtol=1e-5)


def test_lamb_needs_a_head_that_does_not_begin_at_zero():
  """After a first step with a small learning rate, it grows by that fraction a step at most."""
  new = {"head/kernel", "head/bias", "embedding/kernel"}
  LAMB().check_start(resolved.config(model=Model(head_std=0.02)), new)
  LAMB().check_start(resolved.config(), new - {"head/kernel"})  # which comes from weights
  LAMB(decay_rules=(("head/.*", 0.0), (".*", 1.0))).check_start(resolved.config(), new)
  LAMB(trainable="embedding/.*").check_start(resolved.config(), new)
  with pytest.raises(ConfigError, match=r"so head/kernel, .*--config\.model\.head_std=0\.02"):
    LAMB().check_start(resolved.config(), new)
  with pytest.raises(ConfigError, match=r"so objective/prediction/kernel, .* take another kind"):
    LAMB().check_start(resolved.config(model=Model(head_std=0.02)), {"objective/prediction/kernel"})


def test_lion():
  params, momentum = drawn(0), dict.fromkeys(SHAPES, 0)
  for step, rate in enumerate(RATES):
    for name, g in drawn(1 + step).items():
      u = np.sign(0.9 * momentum[name] + 0.1 * g) + decays(name) * params[name]
      momentum[name] = 0.99 * momentum[name] + 0.01 * g
      params[name] = params[name] - rate * u
  assert_close(ours(Lion(weight_decay=DECAY))[0], params)


def orthogonal(g):
  """Five Newton-Schulz steps of a matrix."""
  x = g.T if g.shape[0] > g.shape[1] else g
  x = x / np.linalg.norm(x)
  for _ in range(5):
    a = x @ x.T
    x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
  return x.T if g.shape[0] > g.shape[1] else x


def test_muon():
  params, moments, momentum = drawn(0), dict.fromkeys(SHAPES, (0, 0)), dict.fromkeys(SHAPES, 0)
  for step, rate in enumerate(RATES):
    for name, g in drawn(1 + step).items():
      if "encoderblock" in name and name.endswith("kernel"):
        shape = (6, -1) if "/out/" not in name else (-1, 6)
        momentum[name] = 0.95 * momentum[name] + 0.05 * g
        # Nesterov's, with the bias of both terms corrected.
        m, now = momentum[name] / (1 - 0.95 ** (step + 2)), g / (1 - 0.95 ** (step + 1))
        matrix = (0.95 * m + 0.05 * now).reshape(shape)
        u = 0.2 * np.sqrt(max(matrix.shape)) * orthogonal(matrix).reshape(g.shape)
      else:
        m, v, u = adam(*moments[name], g, step, 1e-8)
        moments[name] = m, v
      params[name] = params[name] - rate * (u + decays(name) * params[name])
  assert_close(ours(Muon(weight_decay=DECAY))[0], params)


def test_schedule_free_and_its_average():
  x, z, v = drawn(0), drawn(0), dict.fromkeys(SHAPES, 0)
  total, largest = 0.0, 0.0
  for step, rate in enumerate(RATES):
    largest = max(largest, rate)
    total += largest**2
    c = largest**2 / total if total else 0
    for name, g in drawn(1 + step).items():
      y = 0.9 * x[name] + 0.1 * z[name]
      v[name] = 0.999 * v[name] + 0.001 * g**2
      u = g / (np.sqrt(v[name] / (1 - 0.999 ** (step + 1))) + 1e-8) + decays(name) * y
      z[name] = z[name] - rate * u
      x[name] = (1 - c) * x[name] + c * z[name]
  config = ScheduleFree(weight_decay=DECAY)
  params, state = ours(config)
  assert_close(params, {name: 0.9 * x[name] + 0.1 * z[name] for name in x})
  assert_close(flatten(config.averaged(state, nest(params))), x)


def test_clipping_comes_first():
  """A gradient of norm 1 after clipping, and the same one given so, make the same step."""
  params, gradient = part(drawn(0)), part(drawn(1))
  norm = np.sqrt(sum(np.sum(g**2) for g in jax.tree.leaves(gradient)))
  small = jax.tree.map(lambda g: g / norm, gradient)
  for rule in (Adam(), SGD()):
    clipped, _ = run(dataclasses.replace(rule, clip_norm=1.0), params, [gradient], [0.1])
    expected, _ = run(rule, params, [small], [0.1])
    assert_close(*(trained_of(flatten(tree)) for tree in (clipped, expected)))


@EACH
def test_stacked_blocks_change_as_single_ones(rule):
  config = dataclasses.replace(rule, weight_decay=DECAY, layer_decay=0.5)
  single, stacked = nest(drawn(0)), stack_blocks(nest(drawn(0)))
  gradients, rates = [nest(drawn(1 + i)) for i in range(2)], [0.1, 0.05]
  expected, _ = run(config, single, gradients, rates)
  actual, _ = run(config, stacked, [stack_blocks(g) for g in gradients], rates)
  assert_close(flatten(unstack_blocks(actual)), flatten(expected))


@EACH
def test_frozen_parameters_have_no_part(rule):
  params, state = run(rule, part(drawn(0)), [part(drawn(1))], [0.1])
  assert {x.shape for x in jax.tree.leaves(state)} <= {(), *BLOCK.values(), (6, 4), (3,)}
  assert len(jax.tree.leaves(params)) == len(BLOCK) + 1


def test_factors_of_layers():
  expected = dict.fromkeys(("cls", "embedding/kernel"), 0.5**4)
  expected |= {"Transformer/encoder_norm/scale": 1, "head/kernel": 1}
  expected |= {f"Transformer/encoderblock_{i}/{n}": 0.5 ** (3 - i) for i in range(3) for n in BLOCK}
  assert flatten(factors(TREE, 0.5, 3)) == expected
  whole = stack_blocks(TREE)
  assert optim.depth_of(TREE) == optim.depth_of(whole) == 3
  stacked = factors(whole, 0.5, 3)["Transformer"]["encoderblock"]
  kernel = stacked["MlpBlock_3"]["Dense_0"]["kernel"]
  np.testing.assert_allclose(kernel, np.array([0.125, 0.25, 0.5])[:, None, None])
  assert kernel.shape == (3, 1, 1)


@pytest.mark.parametrize("stacked", [False, True])
def test_blocks_of_a_decoder_are_no_layers_of_the_model(stacked):
  """An objective's own parameters come after the model, whatever they are called."""
  block = nest({name: np.zeros(shape, np.float32) for name, shape in BLOCK.items()})
  decoder = {"Transformer": {f"encoderblock_{i}": block for i in range(5)}}
  whole = TREE | {"objective": {"decoder": stack_blocks(decoder) if stacked else decoder}}
  assert optim.depth_of(whole) == 3
  found = flatten(factors(whole, 0.5, 3))
  assert {found.pop(name) for name in [*found] if name.startswith("objective/")} == {1}
  assert found == flatten(factors(TREE, 0.5, 3))


def test_layers_are_counted_in_the_whole_model_where_few_blocks_are_trained():
  """As by LoRA in the first blocks alone."""
  rule = SGD(momentum=0.0, layer_decay=0.5, ema=0.0)
  before = optim.partition(TREE, ".*/encoderblock_0/.*")
  chain, zero = optim.make(rule), np.int32(0)
  state = train_step.TrainState(zero, TREE, chain.init(before), None, {}, zero, zero)
  ones = jax.tree.map(np.ones_like, before)
  given = dict(learning_rate=1.0, grad_norm=1.0)
  after, *_ = train_step.updated(Objective(), chain, rule, state, before, ones, given, 0.0)
  for x in jax.tree.leaves(jax.tree.map(jnp.subtract, before, after)):
    np.testing.assert_allclose(x, 0.125, rtol=1e-5)


def test_layer_decay_scales_the_whole_change():
  """Decoupled decay too, as by a learning rate of the layer's own."""
  plain, _ = run(Adam(weight_decay=DECAY), nest(drawn(0)), [nest(drawn(1))], [0.1])
  config = Adam(weight_decay=DECAY, layer_decay=0.5)
  scaled, _ = run(config, nest(drawn(0)), [nest(drawn(1))], [0.1])
  wanted = flatten(factors(TREE, 0.5, 3))
  for name, before in drawn(0).items():
    moved = wanted[name] * (flatten(plain)[name] - before)
    np.testing.assert_allclose(flatten(scaled)[name] - before, moved, rtol=1e-3, atol=1e-6)


MESH = steps.mesh_of(2, 2, 2)


@dataclasses.dataclass(frozen=True)
class Distance(ObjectiveSettings, Objective):
  """The distance of a model's parameters from the mean pixel: gradients with little to compile."""

  kind: str = "distance"

  def configured(self, config, model):
    return self

  def prepare(self, batch, key):
    return batch

  def loss(self, params, extra, batch, key):
    pixel, count = batch["image"].mean() / 255, batch["mask"].sum()
    distance = sum(jnp.sum(jnp.square(x - pixel)) for x in jax.tree.leaves(params))
    return Sums(count * distance, count, {})


# An array of each rank and place: all are compiled in the same way.
SOME = r"cls|embedding/kernel|head/.*|.*/(encoder_norm|query|Dense_0)/.*"


def averaging(rule):
  """A run with some parameters of a model, and with an average."""
  plain = dataclasses.replace(rule, ema=0.0, trainable=SOME)
  return steps.changed(
    optimizer=plain if plain.averages else dataclasses.replace(plain, ema=0.9),
    objective=Distance(),
  )


@pytest.mark.parametrize("rule", [LAMB(), Muon(), ScheduleFree()], ids=lambda rule: rule.kind)
def test_a_run_resumes_with_its_average(rule):
  """Steps on 2 x 2 x 2 devices: in one go, and from the state after the second step."""
  config = averaging(rule)
  whole, _ = steps.run(config, MESH, steps.BATCHES[:4])
  half, _ = steps.run(config, MESH, steps.BATCHES[:2])
  step = steps.update(config, MESH)
  half = jax.device_put(half, jax.tree.map(lambda x: x.sharding, steps.placed(config, MESH)))
  for one in steps.BATCHES[2:4]:
    half, _ = step(half, one)
  chex.assert_trees_all_equal(jax.device_get(half), whole)
  assert whole.ema is not None
  trained = optim.partition(whole.params, SOME)
  far = jax.tree.map(lambda a, b: np.abs(a - b).max(), whole.ema, trained)
  assert max(jax.tree.leaves(far)) > 0


def test_the_average_of_a_schedule_free_run_is_x():
  after, _ = steps.run(averaging(ScheduleFree()), MESH, steps.BATCHES[:3])
  wanted = jax.jit(optax.contrib.schedule_free_eval_params)(
    after.optimizer, optim.partition(after.params, SOME)
  )
  chex.assert_trees_all_close(after.ema, wanted, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    (dict(optimizer=ScheduleFree()), "decay='cosine' does not suit .*schedule_free"),
    (dict(optimizer=Muon(), model=Model(name="R50x1")), "kind='muon' is for models with blocks"),
    (
      dict(optimizer=Adam(layer_decay=0.5), model=Model(name="R50x1")),
      "layer_decay is for models with blocks",
    ),
  ],
)
def test_what_does_not_go_together(changes, message):
  config = resolved.config(**changes)
  check = config.optimizer.check if isinstance(config.optimizer, ScheduleFree) else check_patterns
  with pytest.raises(ConfigError, match=message):
    check(config)
  constant = dataclasses.replace(config, schedule=Schedule(decay="constant"))
  constant.optimizer.check(constant)
