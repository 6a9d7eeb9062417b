"""Metrics files: what is written, what a resumed run keeps."""

import json

from vit_jax import writers


def test_lines_are_json_with_their_step(tmp_path):
  writer = writers.Writer(tmp_path, start_step=0)
  writer.write(3, {"loss": 0.5, "data/bad_examples": 2})
  writer.write(4, {"loss": float("nan"), "grad_norm": float("inf")})
  writer.close()
  lines = [json.loads(x) for x in (tmp_path / "metrics.jsonl").read_text().splitlines()]
  assert lines == [
    {"step": 3, "loss": 0.5, "data/bad_examples": 2},
    {"step": 4, "loss": "nan", "grad_norm": "inf"},
  ]
  assert writers.read(tmp_path) == lines


def test_a_line_is_on_disk_as_soon_as_it_is_written(tmp_path):
  writer = writers.Writer(tmp_path, start_step=0)
  writer.write(1, {"loss": 0.5})
  assert len(writers.read(tmp_path)) == 1
  writer.close()


def test_tensorboard_events_hold_the_same_numbers(tmp_path):
  writer = writers.Writer(tmp_path, start_step=0)
  writer.write(7, {"loss": 0.25})
  writer.close()
  (events,) = tmp_path.glob("events.out.tfevents*")
  from tensorboardX.event_file_writer import EventsWriter  # noqa: F401 - the format's own writer
  from tensorboardX.proto import event_pb2

  values = {}
  for record in records(events.read_bytes()):
    event = event_pb2.Event.FromString(record)
    values |= {(v.tag, event.step): v.simple_value for v in event.summary.value}
  assert values == {("loss", 7): 0.25}


def records(data):
  """The records of a TFRecord file: length (8), its sum (4), data, its sum (4)."""
  while data:
    length = int.from_bytes(data[:8], "little")
    yield data[12 : 12 + length]
    data = data[16 + length :]


def test_a_resumed_run_drops_what_came_after_its_checkpoint(tmp_path):
  path = tmp_path / "metrics.jsonl"
  path.write_text('{"step": 5}\n{"step": 10}\n{"step": 10, "a": 1}\n{"step": 15}\n{"step": 20, "lo')
  writers.Writer(tmp_path, start_step=10).close()
  assert [line["step"] for line in writers.read(tmp_path)] == [5, 10, 10]


def test_progress_line_and_clock():
  metrics = dict(loss=0.12345, learning_rate=1e-3, images_per_second=1234.5, eta_seconds=3723.4)
  line = writers.progress_line(7, 100, metrics)
  assert line == "step 7/100  loss 0.1235  lr 1.00e-03  1234 images/s  ETA 1:02:03"


def test_on_a_pipe_every_line_ends(tmp_path, capsys):
  writer = writers.Writer(tmp_path, start_step=0)
  writer.progress("one")
  writer.say("two")
  writer.close()
  assert capsys.readouterr().out == "one\ntwo\n"
