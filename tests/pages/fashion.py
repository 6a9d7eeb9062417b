"""A miniature of Fashion-MNIST: scikit-learn's digits at its size, under the names of its classes.

Writes the images and one table for each split into the folder it is started in.
"""

import csv
import pathlib

import numpy as np
from PIL import Image
from sklearn import datasets

CLASSES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat")
CLASSES += ("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")


def main():
  """Writes them."""
  digits = datasets.load_digits()
  for split, rows in (("train", range(1200)), ("test", range(1200, 1797))):
    pathlib.Path(split).mkdir()
    with open(f"{split}.csv", "w", newline="") as file:
      writer = csv.writer(file)
      writer.writerow(("path", "label"))
      for row in rows:
        pixels = np.round(digits.images[row] * 255 / 16).astype(np.uint8)
        Image.fromarray(pixels).resize((28, 28)).save(f"{split}/{row}.png")
        writer.writerow((f"{split}/{row}.png", CLASSES[digits.target[row]]))


if __name__ == "__main__":
  main()
