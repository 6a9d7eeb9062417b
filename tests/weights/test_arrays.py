"""Invalid arrays are refused in every format; the message names the file and the array."""

import json
import struct

import flax.serialization
import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

from tests.weights import families
from vit_jax import weights
from vit_jax.storage.tree import flatten, nest
from vit_jax.weights import arrays

GOOD = np.ones(3, np.float32)
FORMATS = ["npz", "msgpack", "safetensors", "huggingface"]


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
    weights.save(path, families.params("vit"))
    theirs = {name.replace("/", "."): x for name, x in flat.items()}
    safetensors.numpy.save_file(theirs, path / "model.safetensors")
  return path


def refused(path, message):
  with pytest.raises(ValueError, match=rf"(?s)(w\.\w+|model\.safetensors) .*{message}"):
    weights.load(path)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
  "kind", ["int8", "int64", "uint8", "bool", "complex64", "U4", "S4", "object", "V3", "u1,u1"]
)
def test_types_that_are_no_floats(tmp_path, form, kind):
  array = np.zeros(2, kind)
  try:
    path = write(tmp_path, form, {"a/b": array})
  except (TypeError, KeyError, ValueError, AttributeError, safetensors.SafetensorError):
    pytest.skip(f"{form} has no place for {kind}")
  unreadable = kind == "object" or (form == "msgpack" and kind[0] in "USVu" and kind != "uint8")
  refused(path, "" if unreadable else r"a[/.]b holds")


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", ["float32", "float64", "float16", ml_dtypes.bfloat16])
def test_values_that_are_not_finite(tmp_path, form, value, kind):
  path = write(tmp_path, form, {"good": GOOD, "a/b": np.array([1, value, value], kind)})
  refused(path, r"2 of the 3 values of a[/.]b are NaN")


def test_what_float32_cannot_hold_is_not_finite():
  with pytest.raises(ValueError, match="1 of the 1 values of a are"):
    arrays.checked({"a": np.array([1e39])})


@pytest.mark.parametrize("form", FORMATS)
def test_empty_arrays(tmp_path, form):
  refused(write(tmp_path, form, {"a": np.zeros((3, 0), np.float32)}), r"a is empty, of shape")


@pytest.mark.parametrize("form", FORMATS)
def test_empty_files(tmp_path, form):
  path = write(tmp_path, form, {"a": GOOD})
  file = path / "model.safetensors" if path.is_dir() else path
  file.write_bytes(b"")
  refused(path, "")
  if form != "msgpack":
    safetensors.numpy.save_file({}, file) if form != "npz" else np.savez(file)
    refused(path, "holds 0 arrays")


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
  "name", ["a//b", "/a", "a/", "a\nb", "a\0b", "a\x1b[2Jb", "/".join("a" * 17), "x" * 301]
)
def test_names_that_are_none(tmp_path, form, name):
  if form == "huggingface" and "/" in name:
    return  # there, dots separate the parts, and only known names are allowed
  flat = {name: GOOD}
  if form == "npz":
    flat = {name.replace("\0", "\1"): GOOD}  # the zip ends a name there
  path = write(tmp_path, form, flat)
  with pytest.raises(ValueError, match="name") as caught:
    weights.load(path)
  assert str(caught.value).isprintable()


def test_a_name_with_a_slash_that_is_another_name_too(tmp_path):
  tree = {"a/b": GOOD, "a": {"b": GOOD}}
  (tmp_path / "w.msgpack").write_bytes(flax.serialization.msgpack_serialize(tree))
  refused(tmp_path / "w.msgpack", "two arrays have the same name")


def test_equal_keys_in_msgpack(tmp_path):
  one = flax.serialization.msgpack_serialize({"a": GOOD})
  (tmp_path / "w.msgpack").write_bytes(b"\x82" + one[1:] * 2)
  refused(tmp_path / "w.msgpack", "two of its names are the same")


@pytest.mark.parametrize("kind", arrays.TYPES)
@pytest.mark.parametrize("form", ["npz", "msgpack", "safetensors"])
def test_every_float_is_read_as_float32(tmp_path, form, kind):
  given = np.arange(4, dtype=kind)
  stored = given.view("V2") if (form, kind) == ("npz", "bfloat16") else given
  read = weights.load(write(tmp_path, form, {"a": stored}))
  families.assert_same_bits(read, {"a": given.astype(np.float32)})


def test_the_other_byte_order_is_turned(tmp_path):
  read = weights.load(write(tmp_path, "npz", {"a": GOOD.astype(">f4")}))
  families.assert_same_bits(read, {"a": GOOD})


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
def test_eight_gigabytes_of_nothing_are_refused_quickly(tmp_path, suffix, begin):
  path = tmp_path / f"w.{suffix}"
  with path.open("wb") as file:
    file.write(begin)
    file.truncate(8 * 2**30)
  refused(path, "")
  with path.open("r+b") as file:
    file.truncate(arrays.MAX_BYTES + 1)
  refused(path, "" if suffix == "npz" else "34,359,738,369 bytes; it must have 1 to 34,359,738,368")


def test_too_little_memory_is_said_with_the_file(tmp_path, monkeypatch):
  path = write(tmp_path, "safetensors", {"a": GOOD})

  def none_left(flat):
    raise MemoryError

  monkeypatch.setattr(arrays, "checked", none_left)
  refused(path, r"its \d+ bytes do not fit in this machine's memory")


@pytest.mark.parametrize("damage", ["cut", "header", "zeros"])
def test_damaged_files_of_hugging_face_are_named(tmp_path, damage):
  path = tmp_path / "hf"
  weights.save(path, families.params("vit"))
  file = path / "model.safetensors"
  whole = file.read_bytes()
  file.write_bytes(
    {"cut": whole[:-1], "header": b"\xff" * 8 + whole[8:], "zeros": bytes(len(whole))}[damage]
  )
  refused(path, "safetensors weights")


def test_a_class_of_structures_with_the_size_of_bfloat16(tmp_path):
  refused(write(tmp_path, "npz", {"a": np.zeros(2, "u1,u1")}), "a holds .*floating-point")
  header = json.dumps({"a": dict(dtype="F8_E5M2", shape=[1], data_offsets=[0, 1])}).encode()
  (tmp_path / "w.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + b"\0")
  refused(tmp_path / "w.safetensors", "a holds F8_E5M2")


def test_names_are_checked_before_they_are_nested():
  assert list(arrays.checked(flatten({"a": {"b": GOOD}}))) == ["a/b"]
