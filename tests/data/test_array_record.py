"""The own reader of ArrayRecord beside array_record's, and damaged files."""

import random

import pytest

from vit_jax.data import array_record


def written(path, options, records):
  from array_record.python import array_record_module

  writer = array_record_module.ArrayRecordWriter(str(path), options)
  for record in records:
    writer.write(record)
  writer.close()
  return path.read_bytes()


def some_records(count):
  """Of all sizes around those of blocks, some of which can be compressed."""
  draw = random.Random(0)
  sizes = (0, 1, 5, 3_000, 65_000, 65_472, 65_512, 65_536, 140_000)
  return [draw.randbytes(draw.choice(sizes)) + b"a" * draw.choice((0, 9_000)) for _ in range(count)]


def index_of(content):
  return array_record.index(lambda begin, end: content[begin:end], len(content))


def read(content, number):
  begin, end, row = index_of(content).place(number)
  return array_record.records(content[begin:end], begin)[row]


@pytest.mark.parametrize(
  "options",
  [
    "group_size:1",
    "group_size:1,uncompressed",
    "group_size:7,brotli:3",
    "group_size:7,zstd:3",
    "group_size:3,pad_to_block_boundary:true",
  ],
)
def test_records_are_those_that_were_written(tmp_path, options):
  records = some_records(40)
  content = written(tmp_path / "a", options, records)
  assert len(index_of(content)) == len(records)
  assert [read(content, number) for number in range(len(records))] == records


def test_a_file_without_records(tmp_path):
  assert len(index_of(written(tmp_path / "a", "group_size:1", []))) == 0


@pytest.mark.parametrize(("options", "words"), [("transpose:true", "'t'"), ("snappy", "'s'")])
def test_what_is_not_read_is_told(tmp_path, options, words):
  content = written(tmp_path / "a", f"group_size:1,{options}", [b"a" * 999] * 3)
  with pytest.raises(ValueError, match=words):
    read(content, 0)


def test_damage_is_an_error_and_never_another_record(tmp_path):
  """But for flipped bits inside of a record: the hashes of the format are not compared."""
  records = some_records(6)
  content = written(tmp_path / "a", "group_size:1", records)
  for cut in (0, 100, len(content) // 2, len(content) - 1, len(content) - array_record.BLOCK):
    with pytest.raises(ValueError, match=r"cut short|last block|kind"):
      index_of(content[:cut])
  index = index_of(content)
  begin, end, _ = index.place(4)
  for piece in (b"", content[begin : begin + 39], content[begin : end - 2_000], bytes(99)):
    with pytest.raises(ValueError, match=r"cut short|decompressed|kind"):
      array_record.records(piece, begin)
  draw, last = random.Random(1), len(content) - array_record.BLOCK
  for _ in range(300):  # numbers that a stranger wrote
    place = draw.randrange(last, last + 99)
    changed = bytearray(content)
    changed[place] ^= 1 << draw.randrange(8)
    try:
      assert len(index_of(bytes(changed))) == len(records)
    except ValueError:
      continue
