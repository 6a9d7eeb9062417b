"""Damaged and hostile files: each is refused by name, quickly and in little memory."""

import json
import os
import pickle
import struct
import time
import tracemalloc
import zipfile

import flax.serialization
import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

from tests.weights import families
from vit_jax import weights
from vit_jax.storage.paths import UrlPath
from vit_jax.storage.tree import nest
from vit_jax.weights import arrays

GOOD = np.ones(3, np.float32)
FORMATS = ["npz", "msgpack", "safetensors", "huggingface"]
GIGABYTE = 2**30


def refused(path, message):
  """Asserts that it takes little time and memory to refuse a path, which is named."""
  tracemalloc.start()
  begin = time.process_time()
  try:
    with pytest.raises(ValueError, match=rf"(?s){path.name}.* {message}") as caught:
      weights.load(path)
    seconds, (_, peak) = time.process_time() - begin, tracemalloc.get_traced_memory()
  finally:
    tracemalloc.stop()
  assert seconds < 2
  assert peak < GIGABYTE
  assert str(caught.value).isprintable()


def write(folder, form, flat):
  """Writes these arrays unchanged in one format, and returns the path to load."""
  path = folder / f"w.{form}"
  if form == "npz":
    np.savez(path, **flat)
  elif form == "msgpack":
    path.write_bytes(flax.serialization.msgpack_serialize(nest(flat)))
  elif form == "safetensors":
    safetensors.numpy.save_file(flat, path)
  else:
    path = folder / "hf"
    weights.write(path, weights.Weights(families.params("vit"), None))
    theirs = {name.replace("/", "."): x for name, x in flat.items()}
    safetensors.numpy.save_file(theirs, path / "model.safetensors")
  return path


# Arrays that no format may give; part of the message.
WRONG = {
  "int8": (np.zeros(2, "int8"), r"a[/.]b holds"),
  "uint8": (np.zeros(2, "uint8"), r"a[/.]b holds"),
  "bool": (np.zeros(2, "bool"), r"a[/.]b holds"),
  "complex": (np.zeros(2, "complex64"), r"a[/.]b holds"),
  "text": (np.array(["text"]), r"(a[/.]b holds|weights)"),
  "structure": (np.zeros(2, "u1,u1"), r"(a[/.]b holds|weights)"),  # of the size of bfloat16
  "object": (np.array([{}], object), "weights"),
  "empty": (np.zeros((3, 0), np.float32), r"a[/.]b is empty, of shape"),
  "nan": (np.float32([1, np.nan, np.nan]), r"2 of the 3 values of a[/.]b are NaN"),
  "infinite": (np.array([1, -np.inf], ml_dtypes.bfloat16), r"1 of the 2 values of a[/.]b are NaN"),
  "large": (np.array([1e39]), r"1 of the 1 values of a[/.]b are NaN"),
}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("kind", WRONG)
def test_arrays_that_are_no_weights(tmp_path, form, kind):
  array, message = WRONG[kind]
  if kind == "infinite" and form == "npz":
    array = array.view("V2")  # as NumPy writes bfloat16
  try:
    path = write(tmp_path, form, {"a/b": array})
  except (TypeError, KeyError, ValueError, AttributeError, safetensors.SafetensorError):
    pytest.skip(f"{form} has no place for {kind}")
  refused(path, message)


@pytest.mark.parametrize("form", FORMATS)
def test_empty_files(tmp_path, form):
  path = write(tmp_path, form, {"a": GOOD})
  file = path / "model.safetensors" if path.is_dir() else path
  file.write_bytes(b"")
  refused(path, "")
  if form != "msgpack":
    np.savez(file) if form == "npz" else safetensors.numpy.save_file({}, file)
    refused(path, "holds 0 arrays")


@pytest.mark.parametrize("form", ["npz", "msgpack", "safetensors"])
@pytest.mark.parametrize(
  "name", ["a//b", "/a", "a/", "a\nb", "a\x1b[2Jb", "/".join("a" * 17), "x" * 301]
)
def test_names_that_are_none(tmp_path, form, name):
  refused(write(tmp_path, form, {name: GOOD}), ".*name")


@pytest.mark.parametrize("form", ["npz", "msgpack", "safetensors"])
@pytest.mark.parametrize("kind", arrays.TYPES)
def test_every_float_is_read_as_float32(tmp_path, form, kind):
  given = np.arange(4, dtype=kind)
  stored = given.view("V2") if (form, kind) == ("npz", "bfloat16") else given
  read = weights.load(write(tmp_path, form, {"a": stored}))
  families.assert_same_bits(read, {"a": given.astype(np.float32)})


def npy(header="{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}", *fields, version=1):
  """Bytes of an .npy file with three numbers, and with any header."""
  text = header.format(*fields or ("<f4", "(3,)")).encode().ljust(117) + b"\n"
  return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H", len(text)) + text + b"\0" * 12


HEADER = npy.__defaults__[0]


# The entries of a zip; part of the message.
ZIPS = {
  "huge claim": ([("a.npy", npy(HEADER, "<f4", (2**40,)))], r"claims shape \(1099511627776,\)"),
  "negative": ([("a.npy", npy(HEADER, "<f4", (-3, -1)))], r"claims shape \(-3, -1\)"),
  "pickle": ([("a.npy", npy(HEADER, "|O", (3,)))], "holds pickled objects"),
  "code": ([("a.npy", npy("__import__('os').system('true')"))], ""),
  "nested header": ([("a.npy", npy("(" * 100))], ""),
  "short": ([("a.npy", npy()[:-1])], r"claims shape \(3,\) of float32, 12 bytes, but has 11"),
  "long": ([("a.npy", npy() + b"\0")], "12 bytes, but has 13"),
  "version": ([("a.npy", npy(version=9))], "version"),
  "twice": ([("a.npy", npy()), ("a.npy", npy())], "same name"),
  "no array": ([("readme.txt", b"hello")], r"readme\.txt inside is not an array"),
  "many": ([(f"{i}.npy", b"") for i in range(5_001)], "5,001 arrays"),
  "bomb": ([("a.npy", npy() + bytes(2**24))], "it expands from .* the most is 20 times its size"),
  "nested name": ([("a.npy", npy()), ("a/b.npy", npy())], "a/b lies inside"),
}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("kind", ZIPS)
def test_zips(tmp_path, kind):
  entries, message = ZIPS[kind]
  with zipfile.ZipFile(tmp_path / "w.npz", "w", zipfile.ZIP_DEFLATED) as archive:
    for name, data in entries:
      archive.writestr(name, data)
  refused(tmp_path / "w.npz", message)


def claimed(length, header, data=b""):
  """Bytes of a .safetensors with a header of any claimed length."""
  return struct.pack("<Q", length) + header + data


def described(*names, data=b"", **fields):
  """The same, with the description of arrays that have these fields."""
  header = json.dumps(dict.fromkeys(names, fields)).encode()
  return claimed(len(header), header, data)


TREE = flax.serialization.msgpack_serialize
ONE, NO_TREE, PICKLE = (
  TREE({"a": GOOD}),
  "does not hold a tree of arrays",
  pickle.dumps({"a": GOOD}),
)
NOTHING = dict(dtype="F32", shape=[0], data_offsets=[0, 0])
MANY, FAR_TOO_MANY = ([f"{i:07d}" for i in range(count)] for count in (5_001, 300_000))
# Whole files; part of the message.
FILES = [
  ("msgpack", b"\xff" * 100, ""),
  ("msgpack", TREE([1, 2]), ""),
  ("msgpack", TREE([]), NO_TREE),
  ("msgpack", TREE({"a": "text"}), NO_TREE),
  ("msgpack", TREE({}), "0 arrays"),
  ("msgpack", ONE + b"\0", "content ends after"),
  ("msgpack", TREE({"a": 1j}), "is not an array"),
  ("msgpack", TREE({"a": np.float32(1)}), "is not an array"),
  ("msgpack", b"\x82" + ONE[1:] * 2, "two of its names are the same"),
  ("msgpack", TREE({"a/b": GOOD, "a": {"b": GOOD}}), "two arrays have the same name"),
  ("msgpack", b"\x81\xa1a" * 10_000 + b"\xc0", ""),  # maps in maps
  ("msgpack", b"\x91" * 100_000, ""),  # lists in lists
  *((form, PICKLE, "") for form in ("npz", "msgpack", "safetensors")),
  ("safetensors", described(*MANY, **NOTHING), "holds 5,001 arrays"),
  ("safetensors", described(*FAR_TOO_MANY, **NOTHING), r"header has [\d,]+ bytes; the most is"),
  ("safetensors", claimed(2**40, b"{}"), "header has 1,099,511,627,776 bytes; the most is"),
  ("safetensors", described("a", **NOTHING | dict(shape=[2**40], data_offsets=[0, 2**42])), ""),
  (
    "safetensors",
    described("a", dtype="I32", shape=[1], data_offsets=[0, 4], data=bytes(4)),
    "holds I32",
  ),
  (
    "safetensors",
    described("a", dtype="F8_E5M2", shape=[1], data_offsets=[0, 1], data=b"\0"),
    "a holds F8_E5M2",
  ),
  *(
    (
      "safetensors",
      safetensors.numpy.save({"blocks.0.norm1.weight": GOOD}, {"vit_jax_heads": heads}),
      "its metadata says .* attention heads",
    )
    for heads in ("-1", "x", "9" * 10**5, "10001")
  ),
]


@pytest.mark.parametrize(("form", "data", "message"), FILES, ids=range(len(FILES)))
def test_whole_files(tmp_path, form, data, message):
  (tmp_path / f"w.{form}").write_bytes(data)
  refused(tmp_path / f"w.{form}", message)


@pytest.mark.parametrize("suffix", ["npz", "msgpack", "safetensors"])
@pytest.mark.parametrize(
  "begin",
  [
    b"",
    struct.pack("<Q", 8) + b"{}      ",
    b"\x81\xa1a",
    b"\x81\xa1a\xdd\xff\xff\xff\xff",  # a list of 2^32 - 1
    b"\xdf\xff\xff\xff\xff",  # a map of 2^32 - 1
    b"\x81\xa1a\xc9\x00\x01\x00\x00\x01\xdd\xff\xff\xff\xff",  # an array of 2^32 - 1 axes
    b"\x81\xa1a\xc9\xff\xff\xff\xff\x01",  # an array of 4 GiB
  ],
)
def test_gigabytes_of_nothing(tmp_path, suffix, begin):
  path = tmp_path / f"w.{suffix}"
  for size in (8 * GIGABYTE, arrays.MAX_BYTES + 1):
    with path.open("wb") as file:
      file.write(begin)
      file.truncate(size)
    refused(path, "")


def test_too_little_memory_is_said_with_the_file(tmp_path, monkeypatch):
  path = write(tmp_path, "safetensors", {"a": GOOD})

  def none_left(flat):
    raise MemoryError

  monkeypatch.setattr(arrays, "checked", none_left)
  refused(path, "it does not fit in this machine's memory")
  far = pytest.raises(ValueError, match=r"^toy://b/w .* does not fit in this machine's memory")
  with far, arrays.reading(UrlPath("toy://b/w"), "weights"):
    none_left({})


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


def cut(path):
  path.write_bytes(path.read_bytes()[:-1])


def without_header(path):
  path.write_bytes(b"\xff" * 8 + path.read_bytes()[8:])


def zeros(path):
  path.write_bytes(bytes(path.stat().st_size))


def with_another_part(path):
  arrays = safetensors.numpy.load_file(path)
  safetensors.numpy.save_file(arrays | {"bert": GOOD}, path)


def without_class_token(path):  # transformers would draw a new one
  arrays = safetensors.numpy.load_file(path)
  del arrays["vit.embeddings.cls_token"]
  safetensors.numpy.save_file(arrays, path)


@pytest.mark.parametrize(
  ("file", "damage", "message"),
  [
    ("config.json", lambda path: path.write_text("[" * 100_000), "as JSON: it is nested too deep"),
    ("config.json", lambda path: os.truncate(path, 2**27), "larger than 67,108,864 bytes"),
    (
      "model.safetensors",
      lambda path: path.rename(path.with_name("pytorch_model.bin")),
      "is pickled, and pickles are never read",
    ),
    ("model.safetensors", cut, r"weights \(safetensors\)"),
    ("model.safetensors", without_header, r"weights \(safetensors\)"),
    ("model.safetensors", zeros, r"weights \(safetensors\)"),
    ("model.safetensors", with_another_part, "'bert' is not part of a ViT"),
    ("model.safetensors", without_class_token, "of a model with pool='gap', unlike ViTModel"),
  ],
)
def test_damaged_folders_of_hugging_face(tmp_path, file, damage, message):
  weights.write(tmp_path / "hf", weights.Weights(families.params("vit"), None))
  damage(tmp_path / "hf" / file)
  refused(tmp_path / "hf", f".*{message}")
