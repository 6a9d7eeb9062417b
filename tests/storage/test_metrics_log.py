"""Metrics files: what is written, what a resumed run keeps."""

import errno
import json
import os
import subprocess
import sys
import time

import pytest

from vit_jax.config import RunError
from vit_jax.storage import metrics_log
from vit_jax.storage.base import Retry


def test_events_do_not_wait_for_a_library_that_they_do_not_need(tmp_path):
  (tmp_path / "torch.py").write_text("")
  code = (
    "import sys\n"
    "from vit_jax.storage import events\n"
    "assert 'torch' not in sys.modules\n"
    "import torch\n"
    "with events.without('torch'): import torch\n"
  )
  path = os.pathsep.join([str(tmp_path), *sys.path])
  subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | {"PYTHONPATH": path})


def written(folder, *lines, **options):
  """A writer that has written these lines; a run that goes on at step 0 has none."""
  writer = metrics_log.Writer(folder, **{"start_step": 0} | options)
  for step, metrics in lines:
    writer.write(step, metrics)
  return writer


def test_lines_are_json_with_their_step(tmp_path):
  metrics = {"loss": float("nan"), "grad_norm": float("inf")}
  written(tmp_path, (3, {"loss": 0.5, "data/bad_examples": 2}), (4, metrics)).close()
  lines = [json.loads(x) for x in (tmp_path / "metrics.jsonl").read_text().splitlines()]
  assert lines == [
    {"step": 3, "loss": 0.5, "data/bad_examples": 2},
    {"step": 4, "loss": "nan", "grad_norm": "inf"},
  ]
  assert metrics_log.read_lines(tmp_path) == lines


def test_tensorboard_events_hold_the_same_numbers(tmp_path):
  from tensorboardX.event_file_writer import EventsWriter  # noqa: F401 - the format's own writer

  written(tmp_path, (7, {"loss": 0.25})).close()
  (path,) = tmp_path.glob("events.out.tfevents*")
  values = {}
  for event in events_of(path):
    values |= {(v.tag, event.step): v.simple_value for v in event.summary.value}
  assert values == {("loss", 7): 0.25}


def events_of(path):
  from tensorboardX.proto import event_pb2

  return [event_pb2.Event.FromString(record) for record in records(path.read_bytes())]


@pytest.mark.parametrize("start_step", [0, 3])
def test_tensorboard_drops_the_steps_that_metrics_drop(tmp_path, start_step):
  """It reads files by their names, in which a host had a clock that was a day fast."""
  before = tmp_path / f"events.out.tfevents.{int(time.time()) + 86400}.zebra"
  before.touch()
  written(tmp_path, start_step=start_step).close()
  first, last = sorted(tmp_path.glob("events.out.tfevents*"))
  assert first == before
  _, event = events_of(last)
  assert (event.session_log.status, event.step) == (1, start_step + 1)  # START


def records(data):
  """The records of a TFRecord file: length (8), its sum (4), data, its sum (4)."""
  while data:
    length = int.from_bytes(data[:8], "little")
    yield data[12 : 12 + length]
    data = data[16 + length :]


def test_a_resumed_run_drops_what_came_after_its_checkpoint(tmp_path):
  path = tmp_path / "metrics.jsonl"
  path.write_text('{"step": 5}\n{"step": 10}\n{"step": 10, "a": 1}\n{"step": 15}\n{"step": 20, "lo')
  metrics_log.Writer(tmp_path, start_step=10).close()
  assert [line["step"] for line in metrics_log.read_lines(tmp_path)] == [5, 10, 10]


GOOD = [{"step": 5, "loss": 0.5}, {"step": 10, "test/top1": "nan"}]
DAMAGED = [
  *(b"garbage", b"\0" * 4096, b"", b"\xff\xfe", b'"step"', b"[5]", b"null", b'{"loss": 1}'),
  *(b'{"step": "5"}', b'{"step": true}', b'{"step": -1}', b'{"step": 5.5}'),
  *(b'{"step": 5, "loss": %s}' % value for value in (b"[1]", b"null", b'"much"')),
  *(b'{"step": 5, "loss": 1%s}' % (b"0" * zeros) for zeros in (400, 5000)),
  *(b'{"a":' * 10**5, b"x" * (3 * metrics_log.MAX_LINE), b'\0\0{"step": 5}'),
]


@pytest.mark.parametrize("damage", DAMAGED, ids=range(len(DAMAGED)))
@pytest.mark.parametrize("place", [0, 1, 2])
def test_damaged_lines_are_set_aside_and_the_others_kept(tmp_path, capsys, damage, place):
  path = tmp_path / "metrics.jsonl"
  lines = [json.dumps(line).encode() for line in GOOD]
  path.write_bytes(b"\n".join([*lines[:place], damage, *lines[place:], b'{"step": 10, "cut']))
  assert metrics_log.read_lines(tmp_path) == GOOD
  written(tmp_path, start_step=10).close()
  said = capsys.readouterr().out
  assert f"damaged line(s), the first in line {place + 1}; they are now in {path}.damaged" in said
  written(tmp_path, start_step=10).close()
  assert not capsys.readouterr().out  # once
  assert metrics_log.read_lines(tmp_path) == GOOD
  assert path.read_bytes() == b"".join(line + b"\n" for line in lines)
  assert (tmp_path / "metrics.jsonl.damaged").read_bytes() == damage + b"\n"


def test_lines_that_are_fewer_than_at_the_checkpoint_are_told(tmp_path, capsys):
  path = tmp_path / "metrics.jsonl"
  first = written(tmp_path, *((step, {"loss": 0.5}) for step in (1, 2, 2, 3, 4)))
  first.close()
  again = metrics_log.Writer(tmp_path, start_step=3, lines=4)  # of steps 1 to 3
  again.close()
  assert (first.lines, again.lines) == (5, 4)
  assert not capsys.readouterr().out
  os.truncate(path, len(b"".join(path.read_bytes().splitlines(keepends=True)[:2])))
  metrics_log.Writer(tmp_path, start_step=3, lines=4).close()
  said = capsys.readouterr().out
  assert f"{path} has 2 line(s) up to step 3, where the checkpoint was saved with 4" in said
  path.unlink()
  metrics_log.Writer(tmp_path, start_step=3, lines=4).close()
  assert "has 0 line(s)" in capsys.readouterr().out


class Follower(metrics_log.Follower):
  def __init__(self):
    self.got = []

  def write(self, step, metrics):
    self.got.append((step, metrics))

  def picture(self, step, name, png):
    self.got.append((step, name, png))

  def close(self):
    self.got.append("closed")


def test_a_follower_gets_all_that_is_written_and_learns_which_steps_are_repeated(tmp_path):
  first = written(tmp_path, *((step, {"loss": 0.5}) for step in (1, 2, 3)))
  first.close()
  writer = metrics_log.Writer(tmp_path, start_step=1)
  assert (first.reached, writer.reached, writer.lines) == (0, 3, 1)
  follower = Follower()
  writer.follow(follower)
  writer.write(2, {"loss": 0.25})
  writer.picture(2, "test/patches", b"png")
  writer.close()
  assert follower.got == [(2, {"loss": 0.25}), (2, "test/patches", b"png"), "closed"]


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_what_is_no_file_of_metrics_is_set_aside_whole(tmp_path, capsys, make):
  make(tmp_path / "metrics.jsonl")
  assert metrics_log.read_lines(tmp_path) == []
  written(tmp_path, (11, {"loss": 0.5}), start_step=10).close()
  assert metrics_log.read_lines(tmp_path) == [{"step": 11, "loss": 0.5}]
  assert (tmp_path / "metrics.jsonl.damaged").exists()
  assert "cannot be read (It is a" in capsys.readouterr().out


def test_progress_line_and_clock():
  metrics = dict(loss=0.12345, learning_rate=1e-3, images_per_second=1234.5, eta_seconds=3723.4)
  line = metrics_log.progress_line(7, 100, metrics)
  assert line == "step 7/100  loss 0.1235  lr 1.00e-03  1,234 images/s  ETA 1:02:03"
  slow = metrics_log.progress_line(7, 100, metrics | dict(images_per_second=0.17))
  assert "  0.17 images/s  " in slow


def test_on_a_pipe_every_line_ends(tmp_path, capsys):
  writer = written(tmp_path)
  writer.progress("one")
  writer.say("two")
  writer.close()
  assert capsys.readouterr().out == "one\ntwo\n"


def test_what_cannot_be_written_waits_and_is_written_in_order(tmp_path, capsys):
  folder, away = tmp_path / "run", tmp_path / "away"
  folder.mkdir()
  writer = written(folder, retry=Retry(60.0))
  folder.rename(away)
  writer.write(1, {"loss": 0.5})
  writer.write(2, {"loss": 0.25})
  writer.picture(2, "val/patches", b"PNG")
  said = capsys.readouterr().out
  assert said.count("They wait in memory, and are tried again for 60 s") == 1
  away.rename(folder)
  writer.complete()
  writer.close()
  assert metrics_log.read_lines(folder) == [{"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.25}]
  assert (folder / "pictures/val/patches/00000002.png").read_bytes() == b"PNG"


def test_a_run_ends_when_its_metrics_cannot_be_written_for_the_time_that_is_set(tmp_path):
  folder, now = tmp_path / "run", [0.0]
  folder.mkdir()
  writer = written(folder, retry=Retry(60.0, clock=lambda: now[0]))
  folder.rename(tmp_path / "away")
  for now[0] in (0.0, 59.0):
    writer.write(1, {"loss": 0.5})
  now[0] = 60.0
  with pytest.raises(RunError, match=f"{folder} cannot be written to"):
    writer.write(3, {"loss": 0.5})
  writer.close()


def test_a_disk_that_is_full_only_when_asked_to_keep_is_named(tmp_path, monkeypatch):
  """NFS may report a full quota only now."""

  def full(_):
    raise OSError(errno.EDQUOT, "Disk quota exceeded")

  writer = written(tmp_path, (1, {"loss": 1.0}))
  monkeypatch.setattr(os, "fsync", full)
  with pytest.raises(RunError, match=f"{tmp_path}.*Disk quota exceeded"):
    writer.complete()
  writer.close()  # says nothing more


def test_a_million_steps_of_metrics_cost_a_start_seconds_and_a_line_nothing(tmp_path):
  """20,000 lines are a million steps, logged every 50."""
  line = {f"metric/{i}": i / 7 for i in range(22)}
  path = tmp_path / "metrics.jsonl"
  path.write_text("".join(json.dumps({"step": 50 * i} | line) + "\n" for i in range(20_000)))
  begin = time.monotonic()
  writer = metrics_log.Writer(tmp_path, start_step=999_900)
  assert time.monotonic() - begin < 10
  before = path.stat()
  writer.write(999_950, line)
  after = path.stat()
  assert after.st_ino == before.st_ino  # appended to, not written anew
  assert after.st_size - before.st_size == len(json.dumps({"step": 999_950} | line)) + 1
  writer.close()
