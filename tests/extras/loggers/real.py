"""What the real libraries have kept of a run, on this machine."""

import collections
import glob
import json
import re
import struct

from tests.extras.loggers.fakes import Seen

BLOCK = 32768  # bytes
WHOLE, LAST = 1, 4  # kinds of chunks that end a record
OWN = re.compile("_.*")  # names of a library's own


def wandb(folder, run):
  """Of all starts of an offline run, in order."""
  seen = Seen()
  for path in sorted(glob.glob(f"{folder}/wandb/offline-run-*-{run}/run-{run}.wandb")):
    for record in records(path):
      add(seen, record)
  seen.paths = {key: value for key, value in seen.paths.items() if isinstance(value, str)}
  return seen


def add(seen, record):
  for update in record.config.update:
    seen.settings[update.key] = json.loads(update.value_json)
  for update in record.summary.update:
    seen.paths[update.key] = json.loads(update.value_json)
  row = {}
  for item in record.history.item:
    name, *inner = item.nested_key
    row[name] = {} if inner else json.loads(item.value_json)  # a picture is a dictionary
  if row:
    step = row.pop("step")
    add_row(seen, step, row)
  if record.HasField("exit"):
    seen.status = "failed" if record.exit.exit_code else "finished"


def add_row(seen, step, row):
  row = {key: value for key, value in row.items() if not OWN.fullmatch(key)}
  pictures = [key for key, value in row.items() if isinstance(value, dict)]
  seen.pictures |= {(step, key) for key in pictures}
  if not pictures:
    seen.lines.append((step, row))


def records(path):
  """The records of a .wandb file, which is a log as LevelDB's."""
  from wandb.proto.wandb_internal_pb2 import Record

  with open(path, "rb") as file:
    data = file.read()
  at = 7  # the header
  parts = b""
  while at + 7 <= len(data):
    if BLOCK - at % BLOCK < 7:
      at += BLOCK - at % BLOCK
    length, kind = struct.unpack("<HB", data[at + 4 : at + 7])
    parts += data[at + 7 : at + 7 + length]
    at += 7 + length
    if kind in (WHOLE, LAST):
      yield Record.FromString(parts)
      parts = b""


def mlflow(folder, run):
  import mlflow

  client = mlflow.MlflowClient()
  kept = client.get_run(run)
  lines = collections.defaultdict(list)
  for name in kept.data.metrics:
    for metric in client.get_metric_history(run, name):
      lines[metric.step, metric.timestamp].append((name, metric.value))
  found = [
    (step, dict(values))
    for (step, _), values in sorted(lines.items(), key=lambda each: each[0][::-1])
  ]
  return Seen(
    kept.data.params,
    found,
    set(mlflow_pictures(client, run)),
    kept.data.tags,
    kept.info.status.lower(),
  )


def mlflow_pictures(client, run, folder="pictures"):
  for each in client.list_artifacts(run, folder):
    if each.is_dir:
      yield from mlflow_pictures(client, run, each.path)
    else:
      _, *name, step = each.path.removesuffix(".png").split("/")
      yield int(step), "/".join(name)


def trackio(folder, run):
  from trackio.sqlite_storage import SQLiteStorage

  seen = Seen(SQLiteStorage.get_run_config(PROJECT, run), status="finished")
  for row in SQLiteStorage.get_logs(PROJECT, run):
    step = row.pop("step")
    del row["timestamp"]
    seen.paths |= {key: value for key, value in row.items() if isinstance(value, str)}
    if not any(isinstance(value, str) for value in row.values()):
      add_row(seen, step, row)
  return seen


PROJECT = "tests"
