"""Weights in several files: the index and the shards beside it must belong together."""

import json

import numpy as np
import pytest
import safetensors.numpy

from tests.weights import families
from vit_jax import weights
from vit_jax.extras.formats import shards
from vit_jax.weights import Weights
from vit_jax.weights.card import Card

ONE, TWO = (f"model-0000{i}-of-00002.safetensors" for i in (1, 2))


def bytes_of(arrays):
  return sum(array.nbytes for array in arrays.values())


@pytest.fixture
def folder(tmp_path):
  """A folder of Hugging Face whose arrays are in two shards."""
  path = tmp_path / "hf"
  weights.write(path, Weights(families.params("vit"), Card(image_size=16)))
  arrays = safetensors.numpy.load_file(path / shards.WEIGHTS)
  (path / shards.WEIGHTS).unlink()
  names = sorted(arrays)
  places = dict.fromkeys(names[:9], ONE) | dict.fromkeys(names[9:], TWO)
  for file in (ONE, TWO):
    part = {name: arrays[name] for name in names if places[name] == file}
    safetensors.numpy.save_file(part, path / file)
  described = {"metadata": {"total_size": bytes_of(arrays)}, "weight_map": places}
  (path / shards.INDEX).write_text(json.dumps(described))
  return path


def test_shards_are_read_as_one_file(folder):
  families.assert_same_bits(weights.load(folder), families.params("vit"))


def test_shards_of_a_model_of_timm_are_refused(folder):
  (folder / "config.json").write_text('{"architecture": "vit_tiny_patch16_224"}')
  with pytest.raises(ValueError, match=r"its weights are in shards.*max_shard_size"):
    weights.load(folder)


def test_an_index_without_a_size_is_read(folder):
  change(folder, lambda index: index.pop("metadata"))
  families.assert_same_bits(weights.load(folder), families.params("vit"))


def change(folder, edit):
  index = json.loads((folder / shards.INDEX).read_text())
  edit(index)
  (folder / shards.INDEX).write_text(json.dumps(index))


def rewrite(folder, file, edit):
  arrays = safetensors.numpy.load_file(folder / file)
  edit(arrays)
  safetensors.numpy.save_file(arrays, folder / file)


def halve(arrays):
  arrays.update({name: np.float16(array) for name, array in arrays.items()})


@pytest.mark.parametrize("size", [2**70, "many", None])
def test_another_total_size_is_said(folder, caplog, size):
  change(folder, lambda index: index.update(metadata={"total_size": size}))
  families.assert_same_bits(weights.load(folder), families.params("vit"))
  assert f"index.json says total_size is {size!r}, and the arrays of its shards have" in caplog.text


def test_shards_of_a_narrower_type_are_read(folder, caplog):
  rewrite(folder, ONE, halve)
  weights.load(folder)
  assert "says total_size is" in caplog.text


def placed(file):
  """Places the first array of an index in a file of this name."""

  def edit(folder):
    change(folder, lambda index: index["weight_map"].update({min(index["weight_map"]): file}))

  return edit


EXTRA = {"classifier.bias": np.ones(5, np.float32)}  # it is in the first shard
# What is wrong, and part of the message.
WRONG = {
  "parent": (placed("../hf/" + ONE), r"index\.json places an array in '\.\./hf/model-0"),
  "absolute": (placed("/etc/passwd.safetensors"), r"places an array in '/etc/passwd\.safe"),
  "hidden": (placed(".safetensors"), r"places an array in '\.safetensors'; a shard is a"),
  "pickle": (placed("model.bin"), r"places an array in 'model\.bin'; a shard is a \.safetensors"),
  "escape": (placed("a\x1b.safetensors"), r"places an array in 'a\\x1b\.safetensors'"),
  "number": (placed(7), "places an array in 7;"),
  "missing": (
    placed("gone.safetensors"),
    r"names 3 shards, of which 1 are missing: 'gone\.safetensors'",
  ),
  "moved": (placed(TWO), rf"{TWO} lacks arrays, by .*: 'classifier\.bias'"),
  "no map": (
    lambda folder: change(folder, lambda index: index.update(weight_map=[])),
    r"index\.json is no index of shards: weight_map is \[\]",
  ),
  "empty": (
    lambda folder: change(folder, lambda index: index.update(weight_map={})),
    "it holds 0 arrays",
  ),
  "many": (
    lambda folder: change(
      folder, lambda index: index.update(weight_map={f"{i}": ONE for i in range(5_001)})
    ),
    "it holds 5,001 arrays",
  ),
  "not JSON": (
    lambda folder: (folder / shards.INDEX).write_text("{"),
    "index.json cannot be read as JSON",
  ),
  "twice": (
    lambda folder: rewrite(folder, TWO, lambda arrays: arrays.update(EXTRA)),
    rf"{TWO} also holds arrays, by .*: 'classifier\.bias'",
  ),
  "lacks": (
    lambda folder: rewrite(folder, ONE, lambda arrays: arrays.pop("classifier.bias")),
    rf"{ONE} lacks arrays, by .*: 'classifier\.bias'",
  ),
  "damaged": (
    lambda folder: (folder / TWO).write_bytes(b"\xff" * 100),
    rf"{TWO}",
  ),
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_does_not_belong_together_is_refused_in_a_sentence(folder, kind):
  edit, message = WRONG[kind]
  edit(folder)
  with pytest.raises(ValueError, match=message) as error:
    weights.load(folder)
  assert str(error.value).isprintable()


def test_only_the_index_leads_to_shards(folder):
  """A file beside them that the index does not name is not read."""
  safetensors.numpy.save_file({"a": np.ones(1, "f4")}, folder / "other.safetensors")
  families.assert_same_bits(weights.load(folder), families.params("vit"))
