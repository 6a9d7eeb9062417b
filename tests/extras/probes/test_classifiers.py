"""Classifiers on shared features, against scikit-learn, SciPy and NumPy in float64."""

import types

import jax
import numpy as np
import optax
import pytest
import threadpoolctl
from scipy import optimize, special
from sklearn.neighbors import KNeighborsClassifier

from tests.extras.probes import made
from vit_jax.config import ConfigError
from vit_jax.extras.probes import (
  attentive,
  few_shot,
  linear,
  logistic,
  neighbours,
  parts,
  probe,
  scores,
)
from vit_jax.extras.probes.batches import chunks, cosine

CLASSES = 4
TRAIN, LABELS = made.features(120, CLASSES)
TEST, TEST_LABELS = made.features(200, CLASSES, seed=1)


def unit(x):
  x = np.float64(x)
  return x / np.linalg.norm(x, axis=1, keepdims=True)


def test_neighbours_against_scikit_learn():
  found = dict(neighbours.fits(TRAIN, LABELS, CLASSES))
  assert list(found) == ["10-nn", "20-nn", "100-nn"]
  assert neighbours.left_out(120) == "no k = 200: there are 120 training images"
  for name, fitted in found.items():
    count = int(name.removesuffix("-nn"))
    # On the unit sphere the squared distance is 2 - 2 s.
    vote = lambda distances: np.exp((1 - distances**2 / 2) / 0.07)
    theirs = KNeighborsClassifier(count, weights=vote, algorithm="brute")
    theirs.fit(unit(TRAIN["pre_logits"]), LABELS)
    ours = fitted.scores(TEST)
    ours /= ours.sum(axis=1, keepdims=True)
    expected = theirs.predict_proba(unit(TEST["pre_logits"]))
    np.testing.assert_allclose(ours, expected, atol=2e-4)
    accuracy = theirs.score(unit(TEST["pre_logits"]), TEST_LABELS)
    assert scores.accuracy(ours, TEST_LABELS) == pytest.approx(accuracy, abs=1e-3)
    assert accuracy > 0.6


def minimised(x, labels, strength):
  """Logistic regression in float64, by SciPy."""
  width = x.shape[1]

  def cost(flat):
    weights = flat.reshape(CLASSES, width + 1)
    logs = special.log_softmax(x @ weights[:, :-1].T + weights[:, -1], axis=1)
    wrong = np.exp(logs) - np.eye(CLASSES)[labels]
    gradient = np.concatenate([wrong.T @ x, wrong.sum(axis=0)[:, None]], axis=1) * strength
    gradient[:, :-1] += weights[:, :-1]
    loss = -logs[np.arange(len(x)), labels].sum() * strength
    return loss + (weights[:, :-1] ** 2).sum() / 2, gradient.ravel()

  start = np.zeros(CLASSES * (width + 1))
  options = {"maxiter": 5000, "ftol": 1e-15, "gtol": 1e-10}
  return optimize.minimize(cost, start, jac=True, method="L-BFGS-B", options=options).x.reshape(
    CLASSES, width + 1
  )


@pytest.fixture
def few_strengths(monkeypatch):
  monkeypatch.setattr(logistic, "STRENGTHS", np.logspace(-3, 0, 4))


def test_the_strengths_are_those_of_the_protocol():
  assert len(logistic.STRENGTHS) == 45
  assert np.log10(logistic.STRENGTHS[[0, 1, -1]]) == pytest.approx([-6, -5.75, 5])


def test_small_features_are_fitted_by_one_thread(few_strengths, monkeypatch):
  def most(images):
    threads.append(max(pool["num_threads"] for pool in threadpoolctl.threadpool_info()))

  threads = []
  with threadpoolctl.threadpool_limits(2):
    logistic.fit(TRAIN, LABELS, CLASSES, 0, lambda total: most)
    monkeypatch.setattr(logistic, "SMALL", 0)
    logistic.fit(TRAIN, LABELS, CLASSES, 0, lambda total: most)
  assert threads == [1, 1, 1, 1, 2, 2, 2, 2, 2, 2]


def test_logistic_regression_against_scipy(few_strengths):
  rows, held = parts.held_out(LABELS, 0)
  x = np.float64(TRAIN["pre_logits"])
  split = x[rows], LABELS[rows], x[held], LABELS[held]
  best, heat = logistic.chosen(*split, lambda images: None)
  tried = {}
  for strength in (1e-3, best):
    weights = minimised(x[rows], LABELS[rows], strength)
    tried[strength] = x[held] @ weights[:, :-1].T + weights[:, -1]
  accuracies = {key: scores.accuracy(logits, LABELS[held]) for key, logits in tried.items()}
  assert accuracies[best] == max(accuracies.values())
  assert heat == pytest.approx(scores.temperature(tried[best], LABELS[held]), rel=0.01)

  fitted = logistic.fit(TRAIN, LABELS, CLASSES, seed=0)
  assert fitted.chosen == f"C = {best:.3g}"
  weights = minimised(x, LABELS, best)
  expected = np.float64(TEST["pre_logits"]) @ weights[:, :-1].T + weights[:, -1]
  ours = fitted.scores(TEST)
  difference = special.softmax(ours, axis=1) - special.softmax(expected, axis=1)
  assert abs(difference).max() < 1e-3
  accuracy = scores.accuracy(expected, TEST_LABELS)
  assert scores.accuracy(ours, TEST_LABELS) == pytest.approx(accuracy, abs=1e-3)


def test_logits_of_two_classes(few_strengths):
  train, labels = made.features(40, 2)
  fitted = logistic.fit(train, labels, 2, seed=0)
  assert fitted.scores(train).shape == (40, 2)
  assert scores.accuracy(fitted.scores(train), labels) > 0.8


def trained_in_numpy(data, kind, steps, seed, initial):
  """One kind of linear probe for all rates, in float64: (R, D, K) and (R, K)."""
  image, mean, labels = data
  x = np.float64(image[:, -kind.blocks :].reshape(len(image), -1))
  if kind.mean:
    x = np.concatenate([x, mean], axis=1)
  order = np.random.default_rng(seed)
  rows = np.concatenate([order.permutation(len(x)) for _ in range(10 * steps)])
  kernels = np.repeat(np.float64(initial)[None], len(linear.RATES), axis=0)
  biases = np.zeros((len(linear.RATES), CLASSES))
  speed, drift = np.zeros_like(kernels), np.zeros_like(biases)
  for step in range(steps):
    chosen = rows[step * 128 : (step + 1) * 128]
    for i, rate in enumerate(linear.RATES):
      wrong = special.softmax(x[chosen] @ kernels[i] + biases[i], axis=1)
      wrong[np.arange(128), labels[chosen]] -= 1
      speed[i] = 0.9 * speed[i] + x[chosen].T @ wrong / 128
      drift[i] = 0.9 * drift[i] + wrong.mean(axis=0)
      factor = rate / 2 * (1 + np.cos(np.pi * step / steps)) / 2
      kernels[i] -= factor * speed[i]
      biases[i] -= factor * drift[i]
  return kernels, biases


def test_the_linear_probe_against_numpy():
  steps = 60
  tried = linear.kinds(TRAIN, class_token=True)
  assert [(kind.blocks, kind.mean) for kind in tried] == [(1, 0), (1, 1), (2, 0), (2, 1)]
  data = TRAIN["image"], TRAIN["mean"], LABELS
  done = []
  weights = linear.trained(data, tried, CLASSES, 3, steps, done.append)
  assert sum(done) == steps * 128
  for number in (0, 3):
    kind = tried[number]
    initial = linear.initial(kind, TRAIN["image"], CLASSES, 3 + number)[0][0]
    expected = trained_in_numpy(data, kind, steps, 3, initial)
    for ours, theirs in zip(weights[kind], expected, strict=True):
      np.testing.assert_allclose(ours, theirs, atol=2e-5)


def test_the_linear_probe_chooses_on_the_held_out_tenth():
  fitted = linear.fit(TRAIN, LABELS, CLASSES, 0, class_token=True, steps=50)
  assert fitted.chosen.startswith("rate ")
  assert scores.accuracy(fitted.scores(TEST), TEST_LABELS) > 0.6
  kinds = linear.kinds(TRAIN, class_token=False)
  assert [kind.in_words() for kind in kinds] == [
    "mean of the patches of the last block",
    "mean of the patches of 2 blocks",
  ]


def test_the_order_of_batches_and_the_cosine():
  rows = np.concatenate([some.ravel() for some in chunks(10, 4, 120, 0)])
  assert len(rows) == 480
  for first in range(0, 480, 10):
    assert sorted(rows[first : first + 10]) == list(range(10))
  assert cosine(0, 3, 4) == pytest.approx([1, (1 + 0.5**0.5) / 2, 0.5])


def plain(block, query, x):
  """The attention of one query to tokens (B, N, D), with keys and values of every token."""
  x = (x - x.mean(axis=-1, keepdims=True)) / np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5)
  x = x * block["before"]["scale"] + block["before"]["bias"]
  count = attentive.heads(x.shape[-1])
  affine = lambda name, x: x @ np.float64(block[name]["kernel"]) + block[name]["bias"]
  q = affine("query", query).reshape(count, -1)
  k, v = (affine(name, x).reshape(*x.shape[:2], count, -1) for name in ("key", "value"))
  weights = special.softmax(np.einsum("hd,bnhd->bhn", q, k) / np.sqrt(q.shape[-1]), axis=-1)
  return np.einsum("bhn,bnhd->bhd", weights, v).reshape(len(x), -1)


def shaken(tree, seed=0):
  rng = np.random.default_rng(seed)
  return jax.tree.map(lambda x: np.float32(x + 0.3 * rng.standard_normal(np.shape(x))), tree)


def test_one_query_attends_as_if_every_key_was_computed():
  params = shaken(attentive.initial(12, CLASSES, 1, 0))
  x = np.float64(TRAIN["patches"][:6])
  with jax.default_matmul_precision("highest"):
    ours = attentive.pooled(params["blocks"][0], params["query"], np.float32(x))
  np.testing.assert_allclose(ours, plain(params["blocks"][0], params["query"], x), atol=1e-4)


def test_the_settings_of_the_attentive_probe():
  assert len(attentive.SETTINGS) == 20
  assert attentive.SETTINGS[7] == (0.1, 1e-3)
  assert [attentive.heads(width) for width in (384, 192, 12, 50)] == [16, 16, 12, 10]


def test_settings_of_the_attentive_probe_train_as_each_alone(monkeypatch):
  monkeypatch.setattr(attentive, "SETTINGS", ((0.4, 1e-4), (0.1, 1e-3)))
  params = attentive.initial(12, CLASSES, 2, 0)
  number = 1
  decay, rate = attentive.SETTINGS[number]
  batch = TRAIN["patches"][:16], LABELS[:16]
  stacked = jax.tree.map(lambda x: np.broadcast_to(x, (2, *x.shape)), params)
  state = stacked, jax.jit(attentive.optimizer().init)(stacked)
  alone = optax.adamw(rate * 0.5, weight_decay=decay)
  moments = jax.jit(alone.init)(params)

  @jax.jit
  def step(params, moments):
    gradient = jax.grad(attentive.loss)(params, *batch)
    updates, moments = alone.update(gradient, moments, params)
    return optax.apply_updates(params, updates), moments

  for _ in range(2):
    state = attentive.step(state, *batch, np.float32(0.5))
    params, moments = step(params, moments)
  jax.tree.map(lambda x, y: np.testing.assert_allclose(x[number], y, atol=2e-5), state[0], params)


class Labelled:
  """A source of which only labels are read."""

  class_names = tuple("abcd")

  def __len__(self):
    return len(LABELS)

  def labels(self, row):
    return (int(LABELS[row]),)


@pytest.mark.parametrize("kind", ["logistic", "linear", "cross_attention"])
def test_progress_ends_at_the_number_of_images_that_it_began_with(few_strengths, kind, monkeypatch):
  monkeypatch.setattr(linear, "run", lambda state, batches: state)
  monkeypatch.setattr(attentive, "initial", lambda *args: np.zeros(1, np.float32))
  monkeypatch.setattr(attentive, "step", lambda state, *batch: state)
  logits_of = lambda params, test: np.float64(test["patches"][:, 0, :CLASSES])
  monkeypatch.setattr(attentive, "logits_of", logits_of)
  images = types.SimpleNamespace(labels=LABELS, class_names=Labelled.class_names)
  totals, done = [], []
  show = lambda total: totals.append(total) or done.append
  assert len(list(probe.fits(kind, images, TRAIN, 0, True, 60, show))) == 1
  assert totals == [sum(done)]


def test_few_shots_by_solving_the_ridge_regression_directly():
  found = dict(few_shot.fits(TRAIN, LABELS, Labelled(), CLASSES, 1))
  assert list(found) == ["1-shot", "5-shot", "10-shot", "25-shot"]
  (drawn,) = few_shot.by_label.first_of_each_class(Labelled(), count=25, seeds=[1], threads=1)
  rows = drawn[:, :5]
  x = np.float64(TRAIN["pre_logits"][rows.ravel()])
  mean, deviation = x.mean(axis=0), x.std(axis=0) + 1e-5
  design = lambda x: np.pad((x - mean) / deviation, ((0, 0), (0, 1)), constant_values=100)
  y = 2 * np.eye(CLASSES)[LABELS[rows.ravel()]] - 1
  a = design(x)
  weights = np.linalg.solve(a.T @ a + 1024 * np.eye(13), a.T @ y)
  expected = design(np.float64(TEST["pre_logits"])) @ weights
  np.testing.assert_allclose(found["5-shot"].scores(TEST), expected, atol=1e-8)


def test_a_held_out_tenth_has_images_of_each_class():
  labels = np.repeat([0, 1, 2, 3], [1, 2, 10, 44])
  rows, held = parts.held_out(labels, 0)
  assert sorted([*rows, *held]) == list(range(len(labels)))
  assert np.bincount(labels[held]).tolist() == [0, 1, 1, 4]
  assert not np.array_equal(held, parts.held_out(labels, 1)[1])
  with pytest.raises(ConfigError, match="none can be held out"):
    parts.held_out(np.arange(3), 0)
