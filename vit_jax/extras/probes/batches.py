"""The order of images in the training of a probe, and how its rate falls."""

from collections.abc import Iterator

import numpy as np

CHUNK = 50  # steps in one compiled program


def chunks(images: int, batch: int, steps: int, seed: int) -> Iterator[np.ndarray]:
  """Yields the rows of up to 50 batches at a time, (steps, batch).

  The rows are those of one permutation of all images after the other.
  """
  rng = np.random.default_rng(seed)
  left = np.zeros(0, np.int64)
  for begin in range(0, steps, CHUNK):
    count = min(CHUNK, steps - begin)
    while len(left) < count * batch:
      left = np.concatenate([left, rng.permutation(images)])
    yield left[: count * batch].reshape(count, batch)
    left = left[count * batch :]


def cosine(first: int, count: int, steps: int) -> np.ndarray:
  """The factors of the rate for `count` steps from `first` on, of `steps`: from 1 down to 0."""
  return np.float32((1 + np.cos(np.pi * np.arange(first, first + count) / steps)) / 2)
