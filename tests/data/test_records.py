"""Reading from many ArrayRecord files: the right record, few open files, clear errors."""

import concurrent.futures
import os
import subprocess
import sys
import types

import pytest

from vit_jax.config import RunError
from vit_jax.data import records
from vit_jax.data.records import Records, Span, write

FILES, EACH = 7, 10
REMEDY = "make it again"


def content(file: int, row: int) -> bytes:
  return b"file %d row %d" % (file, row)


@pytest.fixture
def paths(tmp_path):
  out = [str(tmp_path / f"{file}.array_record") for file in range(FILES)]
  for file, path in enumerate(out):
    write(path, [content(file, row) for row in range(EACH)])
  return out


def open_files(paths) -> int:
  links = [os.path.join("/proc/self/fd", fd) for fd in os.listdir("/proc/self/fd")]
  targets = [os.readlink(link) for link in links if os.path.islink(link)]
  return sum(target in paths for target in targets)


def test_parts_follow_one_another(paths):
  spans = [Span(paths[3], 2, 5), Span(paths[0], 0, 10), Span(paths[3], 9, 1)]
  records = Records(spans, remedy=REMEDY)
  expected = [(3, row) for row in range(2, 7)] + [(0, row) for row in range(10)] + [(3, 9)]
  assert [records[i] for i in range(len(records))] == [content(*one) for one in expected]
  for outside in (-1, 16):
    with pytest.raises(IndexError, match=f"no record {outside} among 16"):
      records[outside]


def test_few_files_are_open_when_they_are_read_and_threads_get_their_records(paths):
  records = Records([Span(path, 0, EACH) for path in paths], remedy=REMEDY, most_open=2)
  assert open_files(paths) == 0
  assert records[25] == content(2, 5)
  assert open_files(paths) == 1
  positions = [(17 * i) % (FILES * EACH) for i in range(2000)]
  with concurrent.futures.ThreadPoolExecutor(8) as pool:
    got = list(pool.map(records.__getitem__, positions))
  assert got == [content(*divmod(position, EACH)) for position in positions]
  assert open_files(paths) == 2


def test_more_files_than_the_system_allows(paths):
  """The limit is raised if the system allows it; otherwise fewer files stay open."""
  code = (
    "import resource, sys; from vit_jax.data.records import Span, Records;"
    "hard = int(sys.argv[1]); resource.setrlimit(resource.RLIMIT_NOFILE, (32, hard));"
    "records = Records([Span(path, 0, 10) for path in sys.argv[2:] * 10], remedy='');"
    "print(*(records[i] for i in range(0, 700, 10)), sep='\\n');"
    "print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
  )
  for hard, expected in ((32, 32), (400, 280)):
    done = subprocess.run(
      [sys.executable, "-c", code, str(hard), *paths], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    *lines, soft = done.stdout.splitlines()
    assert lines == [str(content(i % FILES, 0)) for i in range(70)]
    assert int(soft) == expected


def test_missing_damaged_and_short_files_are_named(paths):
  os.unlink(paths[0])
  os.truncate(paths[1], os.path.getsize(paths[1]) // 2)
  with open(paths[2], "r+b") as stream:
    stream.seek(150)
    stream.write(b"\xff" * 64)
  firsts = [(0, 0), (1, 0), (3, 1), (2, 0)]
  records = Records([Span(paths[i], first, EACH) for i, first in firsts], remedy=REMEDY)
  for position, row, path in ((0, 0, 0), (17, 7, 1), (20, 1, 3), (31, 1, 2)):
    said = rf'Record {row} of "{paths[path]}" cannot be read \(.+\); .*: {REMEDY}\.$'
    with pytest.raises(RunError, match=said):
      records[position]
  with pytest.raises(RunError, match="it has 10 records, not 11"):
    records[20]
  assert records[30] == content(2, 0)


@pytest.mark.parametrize("failures", [3, 4])
def test_a_record_that_fails_for_a_moment_is_read_again(paths, monkeypatch, failures):
  left, reader = [RuntimeError("a moment")] * failures, records._open(Span(paths[0], 0, EACH))

  def read(rows):
    if left:
      raise left.pop()
    return reader.read(rows)

  monkeypatch.setattr(records, "_open", lambda _: types.SimpleNamespace(read=read))
  shards = Records([Span(paths[0], 0, EACH)], remedy=REMEDY)
  if failures == 4:
    with pytest.raises(records.DamagedRecord, match=r"Record 4 of .* cannot be read \(a moment\)"):
      shards[4]
  assert shards[4] == content(0, 4)
