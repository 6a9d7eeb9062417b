"""Images a few at a time, so that the memory is bounded and one program is compiled."""

from collections.abc import Iterator

import numpy as np


def batches(images: np.ndarray, size: int) -> Iterator[tuple[np.ndarray, int]]:
  """Batches of `size` images and the number that counts; blank images fill up the last batch."""
  for begin in range(0, len(images), size):
    some = images[begin : begin + size]
    blank = np.zeros((size - len(some), *images.shape[1:]), images.dtype)
    yield np.concatenate([some, blank]), len(some)
