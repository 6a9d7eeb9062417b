"""Many examples are read at once from a source whose reads wait; batches stay as they are."""

import threading

import numpy as np
import pytest

from tests.data import numbered
from tests.data.numbered import assert_equal
from vit_jax.config import RunError
from vit_jax.data import pipeline

IMAGES = numbered.numbered(50)


class Distant(numbered.Listed):
  """Each read waits until as many others are under way as `together`, or all that are left."""

  distant = True

  def __init__(self, *, together):
    super().__init__(IMAGES._examples)
    self._together, self._change = together, threading.Condition()
    self.under_way = self.most = 0

  def __getitem__(self, index):
    with self._change:
      self.under_way += 1
      self.most = max(self.most, self.under_way)
      self._change.notify_all()
      assert self._change.wait_for(lambda: self.most >= self._together, timeout=60)
      self.under_way -= 1
    return super().__getitem__(index)


def train(source, *, threads=2, steps=2, **options):
  return numbered.train(source, steps=steps, batch_size=8, seed=1, threads=threads, **options)


def test_many_examples_are_read_at_once_and_batches_are_the_same():
  """With threads that decode alone, two would be under way, and each would wait for ever."""
  source = Distant(together=2 * pipeline._REQUESTS)
  for options in ({}, dict(start_step=2, hosts=2), dict(start_step=2, host=1, hosts=2)):
    assert_equal(train(source, **options), train(IMAGES, **options))
  assert source.most <= 2 * pipeline._REQUESTS


def test_every_image_is_evaluated_once():
  there = numbered.evaluate(Distant(together=4), batch_size=8, threads=2)
  assert_equal(there, numbered.evaluate(IMAGES, batch_size=8))
  assert sum(batch["mask"].sum() for batch in there) == len(IMAGES)


def test_without_threads_each_example_is_read_when_it_is_wanted():
  assert_equal(train(Distant(together=1), threads=0), train(IMAGES))


@pytest.mark.parametrize("error", [OSError(2, "No such file", "gs://b/x"), RunError("no")])
def test_errors_come_with_their_example(error):
  class Failing(Distant):
    def __getitem__(self, index):
      if index == 5:
        raise error
      return super().__getitem__(index)

  source = Failing(together=1)
  if isinstance(error, OSError):
    masks = [batch["mask"] for batch in train(source, steps=7)]
    assert (np.concatenate(masks)[: len(IMAGES)] == 0).sum() == 1
  else:
    with pytest.raises(RunError, match="no"):
      train(source, steps=7)
