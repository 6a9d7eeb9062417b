"""Many examples are read at once from a source whose reads wait; batches stay as they are."""

import threading

import numpy as np
import pytest

from tests.data import numbered
from tests.data.test_every_source import CUT, assert_equal
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


def train(source, *, threads=2, start=0, steps=2, host=0, hosts=1):
  options = dict(seed=1, batch_size=8, start=start, host=host, hosts=hosts, threads=threads)
  read = pipeline.train_batches(source, layout=numbered.layout(source, CUT), **options)
  batches = [next(read) for _ in range(steps)]
  read.close()
  return batches


def test_many_examples_are_read_at_once_and_batches_are_the_same():
  """With threads that decode alone, two would be under way, and each would wait for ever."""
  source = Distant(together=2 * pipeline._REQUESTS)
  for start, hosts in ((0, 1), (13, 2)):
    for host in range(hosts):
      options = dict(start=start, host=host, hosts=hosts)
      assert_equal(train(source, **options), train(IMAGES, **options))
  assert source.most <= 2 * pipeline._REQUESTS


def test_every_image_is_evaluated_once():
  options = dict(layout=numbered.layout(IMAGES, numbered.whole, 9), batch_size=8, host=0, hosts=1)
  there = list(pipeline.evaluate_batches(Distant(together=4), threads=2, **options))
  assert_equal(there, list(pipeline.evaluate_batches(IMAGES, threads=0, **options)))
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
