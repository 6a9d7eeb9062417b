"""Writes ViT-B_16.npz with the names and the form of the published file, but of a small model."""

import jax
import numpy as np

from vit_jax import models, weights


def main():
  """Writes it."""
  small = dict(depth=2, width=64, mlp_dim=128, heads=1, num_classes=10)
  model = models.create("ViT-B/16", **small)
  images = np.zeros((1, 224, 224, 3), np.float32)
  params = model.init(jax.random.key(0), images, train=False)["params"]
  weights.save("ViT-B_16.npz", params)


if __name__ == "__main__":
  main()
