"""Makes datasets of small images, for tests of the preparation."""

import collections

import numpy as np

from tests.data.tfds_fixture import jpeg_of
from vit_jax.data import sources
from vit_jax.data.sources.folder import Folder
from vit_jax.extras.preparation import prepare


def write_images(root, counts, seed=0):
  """Writes ROOT/CLASS/i.jpg; returns the paths in order."""
  rng, paths = np.random.default_rng(seed), []
  for name, count in counts.items():
    (root / name).mkdir(parents=True, exist_ok=True)
    for index in range(count):
      paths.append(root / name / f"{index:03}.jpg")
      paths[-1].write_bytes(jpeg_of(rng))
  return paths


def made(tmp_path, splits, name="mine"):
  told = []
  report = prepare.prepare(
    splits,
    str(tmp_path / "tfds"),
    name,
    max_pixels=10**5,
    threads=2,
    started=told.append,
    done=told.append,
  )
  return report, told


def opened(split, name="mine"):
  return sources.open_source(f"tfds:{name}", split=split)


def contents(source):
  return collections.Counter((source[i].image, source[i].labels) for i in range(len(source)))


def folder(path):
  return Folder(str(path), split="")
