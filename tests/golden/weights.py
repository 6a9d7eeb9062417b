"""The deterministic weights and images that the golden logits were computed for.

Every key's generator is seeded by the key's own crc32, so the numbers do not depend on the order.
"""

import json
import pathlib
import zlib

import numpy as np

FOLDER = pathlib.Path(__file__).parent


def golden(name):
  """The contents of NAME.json."""
  return json.loads((FOLDER / f"{name}.json").read_text())


def make(shapes):
  """{key: float32 array} for {key: shape}."""
  return {key: _fill(key, tuple(shape)) for key, shape in shapes.items()}


def images(size, batch=2):
  """(batch, size, size, 3) float32 in [-1, 1]."""
  draws = np.random.default_rng(0).uniform(-1, 1, (batch, size, size, 3))
  return draws.astype(np.float32)


def _fill(key, shape):
  noise = np.random.default_rng(zlib.crc32(key.encode())).standard_normal(shape)
  kind = key.split("/")[-1]
  if kind in {"scale", "gamma"}:
    return (1 + 0.2 * noise).astype(np.float32)
  if kind in {"bias", "beta"}:
    return (0.1 * noise).astype(np.float32)
  if kind == "kernel":
    return (noise / np.sqrt(_fan_in(key, shape))).astype(np.float32)
  return (0.5 * noise).astype(np.float32)


def _fan_in(key, shape):
  projects_in = any(part in key.split("/") for part in ("query", "key", "value"))
  return shape[0] if projects_in else np.prod(shape[:-1])
