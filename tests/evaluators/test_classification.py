"""Exact figures for any batch size and any padding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vit_jax import config as c
from vit_jax.evaluators import classification

CLASSES = 9


class Lookup:
  """A model whose logits are chosen by each image's first two pixel values."""

  dtype = jnp.float32

  def __init__(self, table):
    self.table = jnp.asarray(table, jnp.float32)

  def apply(self, _, images, *, train):
    assert not train
    pixels = jnp.round(images[:, 0, 0, :2] * 127.5 + 127.5).astype(int)
    return self.table[pixels[:, 0] * 256 + pixels[:, 1]], {}


def batches(labels, batch_size):
  for begin in range(0, len(labels), batch_size):
    index = np.arange(begin, begin + batch_size)
    mask = (index < len(labels)).astype(np.float32)
    index = np.minimum(index, len(labels) - 1)
    image = np.zeros((batch_size, 1, 1, 3), np.uint8)
    image[:, 0, 0, 0], image[:, 0, 0, 1] = index // 256, index % 256
    yield dict(image=image, labels=labels[index], mask=mask)


def reference(logits, target):
  order = np.argsort(-logits, axis=-1, kind="stable")
  hits = np.take_along_axis(target, order, -1) > 0
  share = target / np.maximum(target.sum(-1, keepdims=True), 1)
  log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
  return hits[:, 0].mean(), hits[:, :5].any(-1).mean(), -(share * log_p).sum(-1).mean()


def evaluate(logits, labels, batch_size):
  step = jax.jit(classification.make_step(Lookup(logits), c.Loss()))
  return classification.evaluate(step, {}, batches(labels, batch_size))


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 300), st.integers(1, 64), st.booleans(), st.integers(0, 100))
def test_every_image_counts_exactly_once(count, batch_size, multi_label, seed):
  rng = np.random.default_rng(seed)
  logits = rng.normal(size=(count, CLASSES))
  labels = rng.integers(0, CLASSES, count, np.int32)
  target = np.eye(CLASSES)[labels]
  if multi_label:
    target = np.maximum(target, rng.random((count, CLASSES)) < 0.2)
    labels = target.astype(np.uint8)
  top1, top5, loss = reference(logits, target)
  result = evaluate(logits, labels, batch_size)
  assert result["examples"] == count
  assert result["top1"] == pytest.approx(top1, abs=1e-12)
  assert result["top5"] == pytest.approx(top5, abs=1e-12)
  assert result["loss"] == pytest.approx(loss, rel=1e-5)


def test_fewer_than_five_classes():
  logits = np.array([[0.0, 1.0], [0.0, 1.0]])
  step = jax.jit(classification.make_step(Lookup(logits), c.Loss()))
  result = classification.evaluate(step, {}, batches(np.array([0, 1], np.int32), 2))
  assert (result["top1"], result["top5"]) == (0.5, 1.0)


def test_given_up_when_told_to_stop():
  step = lambda params, batch: dict(loss=0.0, top1=0.0, top5=0.0, examples=1.0)
  asked = iter([False, False, True])
  assert classification.evaluate(step, {}, [{}] * 9, stop=lambda: next(asked)) is None


def test_one_batch_is_always_ahead():
  """The sums of a batch are read only after the next batch's step has been called."""
  log = []

  class Sum:
    def __init__(self, number):
      self.number = number

    def __array__(self, dtype=None, copy=None):
      log.append(("read", self.number))
      return np.float32(0)

  def step(params, batch):
    log.append(("step", batch))
    return dict(loss=Sum(batch), top1=0.0, top5=0.0, examples=1.0)

  classification.evaluate(step, {}, [0, 1, 2])
  assert log.index(("step", 1)) < log.index(("read", 0))
  assert log.index(("step", 2)) < log.index(("read", 1))
