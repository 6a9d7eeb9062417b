"""Opens sources with the default settings, and makes folders of files."""

import pathlib

import numpy as np

from vit_jax.data import sources


def open_source(spec: str, split: str = "", **options):
  return sources.open_source(spec, split=split, **options)


def every(source) -> list[sources.Example]:
  return [source[index] for index in range(len(source))]


def assert_same(first, second) -> None:
  assert first.labels == second.labels
  assert first.name == second.name
  assert np.array_equal(first.image, second.image)


def tree(root: pathlib.Path, *names: str) -> pathlib.Path:
  """Writes files that contain their own names, and the folders around them; returns the root."""
  root.mkdir(parents=True, exist_ok=True)
  for name in names:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_bytes(name.encode())
  return root
