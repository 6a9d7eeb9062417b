"""Results of batches are read one behind, so that the devices always have the next batch."""

from vit_jax.evaluation.adding import one_behind


def test_each_result_comes_after_the_next_one_was_dispatched():
  dispatched = []

  def results(count):
    for number in range(count):
      dispatched.append(number)
      yield number

  seen = [(result, len(dispatched)) for result in one_behind(results(4))]
  assert seen == [(0, 2), (1, 3), (2, 4), (3, 4)]
  assert list(one_behind(results(0))) == []
  assert list(one_behind([0])) == [0]
