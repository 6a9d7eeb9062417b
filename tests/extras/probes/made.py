"""Features and images that tests of probes make."""

import numpy as np
from PIL import Image

from tests.weights import families
from vit_jax import weights
from vit_jax.weights import Weights
from vit_jax.weights.card import Card

COLOURS = {"<red>": (200, 40, 40), "blue": (40, 40, 200), "green": (40, 180, 60)}


def features(images, classes, width=12, layers=2, patches=5, seed=0, noise=1.2):
  """Features of images in overlapping clusters, and their labels."""
  rng = np.random.default_rng(seed)
  centres = np.random.default_rng(99).standard_normal((classes, width))
  labels = np.arange(images) % classes
  x = (centres[labels] + noise * rng.standard_normal((images, width))).astype(np.float32)
  image = np.stack([x + 0.3 * rng.standard_normal(x.shape) for _ in range(layers)], axis=1)
  tokens = x[:, None] + rng.standard_normal((images, patches, width))
  arrays = {"pre_logits": x, "image": image, "mean": tokens.mean(axis=1), "patches": tokens}
  return {name: np.float32(array) for name, array in arrays.items()}, labels


def vit(path, trained_on=()):
  """Writes weights of a small ViT for images of 16 pixels."""
  card = Card(image_size=16, resize=20, trained_on=trained_on)
  weights.write(path, Weights(families.params("vit"), card))


def photos(folder, images=12, seed=0):
  """Writes images of each class of `COLOURS`, in a noisy colour of its own."""
  rng = np.random.default_rng(seed)
  for name, colour in COLOURS.items():
    (folder / name).mkdir(parents=True)
    for i in range(images):
      pixels = np.array(colour) + rng.integers(-30, 31, (24, 20, 3))
      Image.fromarray(np.uint8(np.clip(pixels, 0, 255))).save(folder / name / f"{i}.png")
