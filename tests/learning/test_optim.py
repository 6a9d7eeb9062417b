"""Update rules against NumPy in float64."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from vit_jax import models
from vit_jax.config import DECAY_RULES, ConfigError
from vit_jax.learning import optim
from vit_jax.learning.optimizers.adam import Adam
from vit_jax.learning.optimizers.sgd import SGD
from vit_jax.registry import OPTIMIZERS
from vit_jax.storage.tree import name_of

PARAMS = {"a": {"kernel": np.array([1.0, -2.0, 3.0]), "bias": np.array([0.5])}}
RULES = ((".*/kernel", 1.0), (".*/bias", 0.0))


def gradients(step):
  rng = np.random.default_rng(step)
  return jax.tree.map(lambda p: rng.normal(size=p.shape), PARAMS)


def run(config, steps=5, learning_rate=0.1):
  chain = optim.make(config)
  params = jax.tree.map(lambda p: jnp.asarray(p, jnp.float32), PARAMS)
  state = chain.init(params)
  for step in range(steps):
    grads = jax.tree.map(lambda g: jnp.asarray(g, jnp.float32), gradients(step))
    given = dict(learning_rate=learning_rate, grad_norm=optax.tree.norm(grads))
    changes, state = chain.update(grads, state, params, **given)
    params = jax.tree.map(jnp.add, params, changes)
  return params, state


def adam(moments, g, step):
  """Direction of Adam; `moments` are changed."""
  moments["m"] = 0.9 * moments.get("m", 0) + 0.1 * g
  moments["v"] = 0.999 * moments.get("v", 0) + 0.001 * g**2
  deviation = np.sqrt(moments["v"] / (1 - 0.999 ** (step + 1)))
  return moments["m"] / (1 - 0.9 ** (step + 1)) / (deviation + 1e-8)


def momentum(moments, g, step):
  """Direction of SGD; `moments` are changed."""
  moments["trace"] = 0.9 * moments.get("trace", 0) + g
  return moments["trace"]


@pytest.mark.parametrize(
  ("config", "direction"),
  [
    (Adam(weight_decay=0.3), adam),
    (Adam(weight_decay=0.3, clip_norm=0.2, decay_kind="coupled"), adam),
    (SGD(clip_norm=0.2), momentum),
    (SGD(clip_norm=5.0, weight_decay=0.3), momentum),
    (SGD(clip_norm=1.0, weight_decay=0.3, decay_kind="coupled"), momentum),
  ],
)
def test_steps_against_numpy(config, direction):
  """Coupled decay goes through the moments, after clipping."""
  params, moments = dict(PARAMS["a"]), {"kernel": {}, "bias": {}}
  for step in range(5):
    grads = gradients(step)["a"]
    norm = np.sqrt(sum((g**2).sum() for g in grads.values()))
    factor = min(1.0, config.clip_norm / norm) if config.clip_norm else 1.0
    for name, g in grads.items():
      decay = config.weight_decay * params[name] * (name == "kernel")
      coupled = config.decay_kind == "coupled"
      change = direction(moments[name], factor * g + decay * coupled, step)
      params[name] = params[name] - 0.1 * (change + decay * (not coupled))
  actual, _ = run(dataclasses.replace(config, decay_rules=RULES))
  for name in params:
    np.testing.assert_allclose(actual["a"][name], params[name], rtol=1e-4)


@pytest.mark.parametrize("kind", ["adam", "sgd"])
def test_only_the_first_moment_may_be_bfloat16(kind):
  config = OPTIMIZERS[kind](moment_dtype="bfloat16", decay_rules=RULES)
  params, state = run(config)
  types = [str(x.dtype) for x in jax.tree.leaves(state) if x.ndim]
  assert types.count("bfloat16") == 2
  assert types.count("float32") == (2 if kind == "adam" else 0)
  exact, _ = run(OPTIMIZERS[kind](decay_rules=RULES))
  np.testing.assert_allclose(params["a"]["kernel"], exact["a"]["kernel"], rtol=0.02)


@pytest.mark.parametrize("decay", [0.9, 0.99, 0.995, 0.999])
@pytest.mark.parametrize(("kind", "setting"), [("adam", "beta1"), ("sgd", "momentum")])
def test_a_moment_in_bfloat16_decays_as_in_float32(kind, setting, decay):
  """The moment is rounded, but not the decay: in bfloat16 0.999 is 1, which never decays."""
  noise = np.random.default_rng(0).normal(size=(1000, 1024)).astype(np.float32)
  gradients = 0.2 + noise
  moments = {}
  for dtype in ("float32", "bfloat16"):
    settings = OPTIMIZERS[kind](moment_dtype=dtype, decay_rules=((".*", 0.0),))
    chain = optim.make(dataclasses.replace(settings, **{setting: decay}))
    params = {"w": jnp.zeros(1024)}

    def update(state, gradient, chain=chain, params=params):
      changes, state = chain.update({"w": gradient}, state, params, learning_rate=1.0)
      return state, jnp.mean(changes["w"])

    _, moments[dtype] = jax.lax.scan(update, chain.init(params), gradients)
  # The mean of many numbers is closer than each, which is rounded to 0.4%.
  far = np.abs(moments["float32"]).max()
  np.testing.assert_allclose(moments["bfloat16"], moments["float32"], atol=0.005 * far)


def test_default_rules_decay_the_kernels_of_a_vit_and_nothing_else():
  model = models.create("ViT-Ti/16", depth=2, representation_layer=True)
  shapes = jax.eval_shape(
    lambda: model.init(jax.random.key(0), jnp.zeros((1, 32, 32, 3)), train=False)["params"]
  )
  factors = jax.tree_util.tree_flatten_with_path(optim.decay_factors(shapes, DECAY_RULES))[0]
  for path, factor in factors:
    assert factor == name_of(path).endswith("/kernel"), name_of(path)
  assert sum(factor for _, factor in factors) == 1 + 2 * 6 + 2


def test_a_step_may_be_given_another_weight_decay():
  decay = optim.decay_weights(0.1, DECAY_RULES)
  params = {"kernel": jnp.full(2, 3.0), "bias": jnp.ones(2)}
  zeros = jax.tree.map(jnp.zeros_like, params)
  params, zeros = {"a": params}, {"a": zeros}
  for given, factor in (({}, 0.1), (dict(weight_decay=0.4), 0.4)):
    changes, _ = decay.update(zeros, decay.init(params), params, learning_rate=1.0, **given)
    np.testing.assert_allclose(changes["a"]["kernel"], 3 * factor, rtol=1e-6)
    assert not changes["a"]["bias"].any()


def test_a_cosine_leads_from_the_first_value_to_the_last():
  found = [optim.cosine(0.04, 0.4, progress) for progress in (0.0, 0.5, 1.0)]
  np.testing.assert_allclose(found, (0.04, 0.22, 0.4), rtol=1e-6)


def test_parameters_are_trained_where_the_regex_matches_their_whole_name():
  assert optim.partition(PARAMS, ".*") == PARAMS
  assert optim.partition(PARAMS, "a/b.*") == {"a": {"kernel": None, "bias": PARAMS["a"]["bias"]}}
  for pattern in ("a/b", "bias", "b"):
    assert not jax.tree.leaves(optim.partition(PARAMS, pattern))


def test_trained_parameters_take_their_place_again():
  part = jax.tree.map(lambda x: x + 1, optim.partition(PARAMS, "a/bias"))
  assert optim.combine(part, PARAMS)["a"]["kernel"] is PARAMS["a"]["kernel"]
  assert optim.combine(part, PARAMS)["a"]["bias"] is part["a"]["bias"]
  assert optim.combine(PARAMS, part) == PARAMS


def test_the_first_rule_that_matches_counts():
  factors = optim.decay_factors(PARAMS, (("a/kernel", 0.5), *RULES))
  assert factors["a"] == {"kernel": 0.5, "bias": 0.0}


def test_a_parameter_without_a_rule_is_named():
  with pytest.raises(ConfigError, match="'a/bias'"):
    optim.decay_factors(PARAMS, RULES[:1])
  with pytest.raises(ConfigError, match="'a/bias'"):  # before the first step
    optim.make(Adam(decay_rules=RULES[:1])).init(PARAMS)
