"""Damaged files of weights: each is refused by name, or what is read are finite parameters."""

import pathlib
import random
import shutil
import time
import tracemalloc

import numpy as np
import pytest

from tests.torture import damage
from tests.weights import families
from vit_jax import weights
from vit_jax.storage.tree import flatten

CASES = (30, 20_000)
FORMATS = ("w.npz", "w.msgpack", "w.safetensors", "hf/model.safetensors", "hf/config.json")
MAX_SECONDS = 5
MAX_BYTES = 2**28


def cases(count: int):
  """(format, damage, seed): every format with every kind of damage in turn."""
  found = []
  for number in range(count):
    name = FORMATS[number % len(FORMATS)]
    kind = damage.KINDS[number // len(FORMATS) % len(damage.KINDS)]
    found.append((f"{number}-{name}-{kind.__name__}", (name, kind, number)))
  return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
  """A folder with sound files of every format."""
  folder = tmp_path_factory.mktemp("whole")
  params = families.params("vit")
  for name in FORMATS:
    weights.write(folder / pathlib.Path(name).parts[0], weights.Weights(params, None))
  return folder


def test_refused_by_name_or_finite(case, whole, tmp_path):
  name, kind, seed = case
  path = tmp_path / pathlib.Path(name).parts[0]
  if (whole / path.name).is_dir():
    shutil.copytree(whole / path.name, path)
  else:
    shutil.copy(whole / path.name, path)
  damaged = tmp_path / name
  damaged.write_bytes(kind(damaged.read_bytes(), random.Random(seed)))
  tracemalloc.start()
  began = time.process_time()
  try:
    params, error = outcome(path)
    seconds, (_, peak) = time.process_time() - began, tracemalloc.get_traced_memory()
  finally:
    tracemalloc.stop()
  assert seconds < MAX_SECONDS
  assert peak < MAX_BYTES
  assert error.isprintable(), error
  assert params or pathlib.Path(name).parts[0] in error, error
  for parameter, array in flatten(params).items():
    assert array.dtype == np.float32, parameter
    assert np.isfinite(array).all(), parameter


def outcome(path: pathlib.Path):
  """The parameters and "", or {} and why they cannot be had."""
  try:
    return weights.read(path).params, ""
  except (ValueError, OSError) as error:
    return {}, str(error)
