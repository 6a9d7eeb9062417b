"""Damaged and hostile files: each is refused by name, quickly and in little memory."""

import io
import json
import pickle
import struct
import time
import tracemalloc
import zipfile

import numpy as np
import pytest
import safetensors.numpy

from tests.weights import families
from vit_jax import weights


def npy(array=None, header=None, version=1):
  """Bytes of an .npy file; `header` replaces the true one."""
  file = io.BytesIO()
  np.lib.format.write_array(file, np.zeros(3, np.float32) if array is None else array)
  if header is None:
    return file.getvalue()
  text = header.encode().ljust(117) + b"\n"
  return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H", len(text)) + text + b"\0" * 12


def npz(path, entries, compression=zipfile.ZIP_STORED):
  with zipfile.ZipFile(path, "w", compression) as archive:
    for name, data in entries:
      archive.writestr(name, data)


HEADER = "{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}"
MEGABYTES = 537


def pickled(path):
  np.savez(path, a=np.array([{"a": 1}], dtype=object))


def bare_pickle(path):
  path.write_bytes(pickle.dumps({"a": np.zeros(3)}))


def bomb(path):
  """Half a megabyte that expands to half a gigabyte."""
  with (
    zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
    archive.open("a.npy", "w", force_zip64=True) as file,
  ):
    header = {"descr": "<f4", "fortran_order": False, "shape": (MEGABYTES * 2**18,)}
    np.lib.format.write_array_header_1_0(file, header)
    for _ in range(MEGABYTES):
      file.write(bytes(2**20))


def huge_claim(path):
  npz(path, [("a.npy", npy(header=HEADER.format("<f4", (2**40,))))])


def negative_shape(path):
  npz(path, [("a.npy", npy(header=HEADER.format("<f4", (-3, -1))))])


def object_header(path):
  npz(path, [("a.npy", npy(header=HEADER.format("|O", (3,))))])


def code_in_header(path):
  npz(path, [("a.npy", npy(header="__import__('os').system('true')"))])


def nested_header(path):
  npz(path, [("a.npy", npy(header="(" * 100))])


def short_data(path):
  npz(path, [("a.npy", npy()[:-1])])


def long_data(path):
  npz(path, [("a.npy", npy() + b"\0")])


def unknown_version(path):
  npz(path, [("a.npy", npy(header=HEADER.format("<f4", (3,)), version=9))])


def two_of_a_name(path):
  with pytest.warns(UserWarning, match="Duplicate"):
    npz(path, [("a.npy", npy()), ("a.npy", npy())])


def no_array(path):
  npz(path, [("readme.txt", b"hello")])


def text(path):
  np.savez(path, a=np.array(["text"]))


def whole_numbers(path):
  np.savez(path, a=np.arange(3))


def many_arrays(path):
  npz(path, [(f"{i}.npy", b"") for i in range(5_001)])


def name_within_a_name(path):
  npz(path, [("a.npy", npy()), ("a/b.npy", npy())])


def flat_head(path):
  np.savez(path, **{"resnet/head/conv2d/kernel": np.zeros((3, 3, 4, 5), np.float32)})


def safetensors_huge_header(path):
  path.write_bytes(struct.pack("<Q", 2**40) + b"{}")


def safetensors_huge_claim(path):
  header = json.dumps({"a": dict(dtype="F32", shape=[2**40], data_offsets=[0, 2**42])}).encode()
  path.write_bytes(struct.pack("<Q", len(header)) + header)


def safetensors_whole_numbers(path):
  header = json.dumps({"a": dict(dtype="I32", shape=[1], data_offsets=[0, 4])}).encode()
  path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))


HOSTILE = [
  (pickled, "npz", "pickled objects"),
  (bare_pickle, "npz", "zip"),
  (bomb, "npz", r"expands from .* more than 20 times"),
  (huge_claim, "npz", r"claims shape \(1099511627776,\)"),
  (negative_shape, "npz", r"claims shape \(-3, -1\)"),
  (object_header, "npz", "pickled objects"),
  (code_in_header, "npz", "cannot be read"),
  (nested_header, "npz", "cannot be read"),
  (short_data, "npz", r"claims shape \(3,\) of float32, 12 bytes, but has 11"),
  (long_data, "npz", r"12 bytes, but has 13"),
  (unknown_version, "npz", "version"),
  (two_of_a_name, "npz", "same name"),
  (no_array, "npz", r"readme\.txt inside is not an array"),
  (text, "npz", "floating-point"),
  (whole_numbers, "npz", "holds int64; weights are floating-point"),
  (many_arrays, "npz", "5,001 arrays"),
  (name_within_a_name, "npz", "a/b lies inside"),
  (flat_head, "npz", r"head's kernel is \(3, 3, 4, 5\)"),
  (bare_pickle, "msgpack", "msgpack"),
  (bare_pickle, "safetensors", "cannot be read as safetensors"),
  (safetensors_huge_header, "safetensors", "cannot be read as safetensors"),
  (safetensors_huge_claim, "safetensors", "cannot be read as safetensors"),
  (safetensors_whole_numbers, "safetensors", "holds I32"),
]


@pytest.mark.parametrize(("make", "suffix", "message"), HOSTILE)
def test_refused_quickly_and_in_little_memory(tmp_path, make, suffix, message):
  path = tmp_path / f"w.{suffix}"
  make(path)
  tracemalloc.start()
  begin = time.process_time()
  try:
    with pytest.raises(ValueError, match=rf"w\.{suffix} .*{message}"):
      weights.load(path)
    seconds, (_, peak) = time.process_time() - begin, tracemalloc.get_traced_memory()
  finally:
    tracemalloc.stop()
  assert seconds < 2
  assert peak < 2**30


@pytest.mark.parametrize("suffix", ["npz", "safetensors", "msgpack"])
def test_every_cut_is_refused(tmp_path, suffix):
  """A download may break off at any byte."""
  path = tmp_path / f"w.{suffix}"
  weights.save(path, {"a": np.arange(5, dtype=np.float32), "b": {"c": np.ones((2, 3), np.float32)}})
  whole = path.read_bytes()
  for length in range(len(whole)):
    path.write_bytes(whole[:length])
    with pytest.raises(ValueError, match=rf"w\.{suffix}"):
      weights.load(path)


def test_every_flipped_byte_of_an_npz_is_refused_or_harmless(tmp_path):
  """The zip's checksums protect the arrays; bytes outside them do not change the arrays."""
  path = tmp_path / "w.npz"
  params = {"a": np.arange(5, dtype=np.float32)}
  weights.save(path, params)
  whole = path.read_bytes()
  for i in range(len(whole)):
    path.write_bytes(whole[:i] + bytes([whole[i] ^ 0x40]) + whole[i + 1 :])
    try:
      read = weights.load(path)
    except ValueError:
      continue
    np.testing.assert_array_equal(next(iter(read.values())), params["a"])


class TestHuggingFace:
  """Damaged and hostile Hugging Face folders."""

  @pytest.fixture
  def folder(self, tmp_path):
    weights.save(tmp_path / "hf", families.params("vit"))
    return tmp_path / "hf"

  def change(self, folder, **settings):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))

  @pytest.mark.parametrize(
    ("settings", "message"),
    [
      (dict(architectures=["BertModel"]), "does not describe a ViTForImageClassification"),
      (dict(num_attention_heads=0), "config.json: num_attention_heads must be whole numbers"),
      (dict(num_attention_heads=3), "num_attention_heads must divide hidden_size"),
      (dict(hidden_size="32"), "config.json: hidden_size must be"),
      (dict(architectures=None), "does not describe"),
      (dict(num_hidden_layers=10**6), r"num_hidden_layers in config\.json is 1,000,000"),
      (dict(num_hidden_layers=10**7), "num_hidden_layers must be whole numbers from 1 to 1,000,"),
      (dict(image_size=18), "patch_size must divide image_size"),
    ],
  )
  def test_settings(self, folder, settings, message):
    self.change(folder, **settings)
    with pytest.raises(ValueError, match=message):
      weights.load(folder)

  def test_json_that_is_none_or_too_large(self, folder):
    (folder / "config.json").write_text("[" * 100_000)
    with pytest.raises(ValueError, match="is not JSON"):
      weights.load(folder)
    with (folder / "config.json").open("wb") as file:
      file.truncate(2**27)
    with pytest.raises(ValueError, match=r"134,217,728 bytes; the most is"):
      weights.load(folder)

  def test_pickles_are_never_looked_at(self, folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"has no model\.safetensors .*pickles"):
      weights.load(folder)

  def test_an_array_that_belongs_to_no_vit(self, folder):
    flat = safetensors.numpy.load_file(folder / "model.safetensors")
    bert = flat | {"bert": np.ones(3, np.float32)}
    safetensors.numpy.save_file(bert, folder / "model.safetensors")
    with pytest.raises(ValueError, match=r"model\.safetensors .*bert is not part of the ViT"):
      weights.load(folder)
    del flat["vit.embeddings.cls_token"]  # transformers would draw a new one
    safetensors.numpy.save_file(flat, folder / "model.safetensors")
    with pytest.raises(ValueError, match=r"vit\.embeddings\.cls_token is missing; by config"):
      weights.load(folder)
