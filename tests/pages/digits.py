"""Writes scikit-learn's digits as folders of images, digits/train and digits/test."""

import pathlib

import numpy as np
from PIL import Image
from sklearn import datasets

TRAINING = 1437  # images


def main():
  """Writes them, below the folder it is started in."""
  digits = datasets.load_digits()
  for i, (image, label) in enumerate(zip(digits.images, digits.target, strict=True)):
    path = pathlib.Path("digits", "train" if i < TRAINING else "test", str(label), f"{i}.png")
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.round(image * 255 / 16).astype(np.uint8)).save(path)


if __name__ == "__main__":
  main()
