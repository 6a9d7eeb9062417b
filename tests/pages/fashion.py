"""Stands in for Fashion-MNIST: scikit-learn's digits at its sizes, under the names of its classes.

Writes train.parquet and test.parquet into the folder it is started in; both repeat the digits.
"""

import io
import itertools

import numpy as np
import pyarrow
from PIL import Image
from pyarrow import parquet
from sklearn import datasets

CLASSES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat")
CLASSES += ("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
SIZES = {"train": (range(1200), 60_000), "test": (range(1200, 1797), 10_000)}


def main():
  """Writes them."""
  digits = datasets.load_digits()
  for split, (some, number) in SIZES.items():
    of_class = [[row for row in some if digits.target[row] == label] for label in range(10)]
    turns = zip(*map(itertools.cycle, of_class), strict=True)  # as many images of each class
    rows = list(itertools.islice(itertools.chain.from_iterable(turns), number))
    encoded = {row: png(digits.images[row]) for row in some}
    names = [CLASSES[digits.target[row]] for row in rows]
    table = pyarrow.table({"image": [encoded[row] for row in rows], "label": names})
    parquet.write_table(table, f"{split}.parquet", row_group_size=1000)


def png(digit: np.ndarray) -> bytes:
  """A digit (8, 8) of 28 x 28 pixels."""
  file = io.BytesIO()
  pixels = np.round(digit * 255 / 16).astype(np.uint8)
  Image.fromarray(pixels).resize((28, 28)).save(file, "PNG")
  return file.getvalue()


if __name__ == "__main__":
  main()
