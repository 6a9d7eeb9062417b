"""The handwritten digits that scikit-learn contains.

They lie in digits.npz, because importing scikit-learn would be a third of the start of a short run.
"""

import functools
import pathlib
from collections.abc import Iterator

import numpy as np

from vit_jax.data.sources.base import Block, Example, Source, SourceError

FILE = pathlib.Path(__file__).with_suffix(".npz")


class Digits(Source):
  """1,797 grey 8 x 8 images of the digits 0 to 9 in a fixed, stratified 80/20 split.

  Source: Alpaydin and Kaynak, "Optical recognition of handwritten digits", UCI Machine Learning
  Repository, 1998 (doi 10.24432/C50P49; CC BY 4.0), of which scikit-learn has the test images; the
  split is that of its `train_test_split` with `test_size=0.2, random_state=0` and stratification.

  Raises:
    SourceError: the split is neither "train" nor "test".
  """

  form = "digits"
  class_names = tuple(str(digit) for digit in range(10))

  def __init__(self, *, split: str):
    if split not in ("train", "test"):
      raise SourceError(f'Source "digits" has the splits "train" and "test", not "{split}".')
    self._split = split
    self.identity = f"digits {split}"
    self._images, self._labels, self._rows = _load(split)

  def __len__(self) -> int:
    return len(self._rows)

  def __getitem__(self, index: int) -> Example:
    return Example(self._images[index], self.labels(index), self.name(index))

  def labels(self, index: int) -> tuple[int, ...]:
    """The digit."""
    return (int(self._labels[index]),)

  def name(self, index: int) -> str:
    """A name with the example's position in the split, and its row in scikit-learn's order."""
    return f"digits {self._split} example {index} (row {self._rows[index]} of scikit-learn's)"

  def blocks(self) -> Iterator[Block]:
    """The images by their rows in scikit-learn's order."""
    yield Block("digits", self._rows, range(len(self)))

  @classmethod
  def named_parts(cls, argument: str) -> dict[str, tuple[str, str]]:
    """Both splits."""
    return {split: (argument, split) for split in ("train", "test")}


@functools.cache  # a run opens both splits several times
def _load(split: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Images (N, 8, 8) uint8 from 0 to 255, labels (N,), rows in scikit-learn's order (N,)."""
  with np.load(FILE) as arrays:
    rows = arrays[split]
    images = np.rint(arrays["images"][rows] * (255 / 16)).astype(np.uint8)
    return images, arrays["labels"][rows], rows
