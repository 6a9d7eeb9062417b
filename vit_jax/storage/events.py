"""Makes the records of TensorBoard's event files, with tensorboardX's messages."""

import contextlib
import re
import socket
import struct
import sys
import time
from collections.abc import Iterable, Iterator


@contextlib.contextmanager
def without(*names: str) -> Iterator[None]:
  """Prevents the import of these packages, except those that are imported already."""
  hidden = [name for name in names if name not in sys.modules]
  sys.modules.update(dict.fromkeys(hidden))
  try:
    yield
  finally:
    for name in hidden:
      del sys.modules[name]


# tensorboardX imports these if they are installed, which takes seconds and is not needed.
with without("torch", "boto3"):
  from tensorboardX.proto.event_pb2 import Event, SessionLog
  from tensorboardX.record_writer import masked_crc32c
  from tensorboardX.summary import Summary


NAME = "events.out.tfevents"


def name_after(names: Iterable[str]) -> str:
  """The name of a new file, which TensorBoard reads after those of a folder with these names."""
  stamps = [re.match(rf"{re.escape(NAME)}\.([0-9]+)\.", name) for name in names]
  latest = max((int(stamp[1]) for stamp in stamps if stamp), default=0)
  return f"{NAME}.{max(int(time.time()), latest + 1)}.{socket.gethostname()}"


def beginning(start_step: int) -> bytes:
  """The first records of a file; they make TensorBoard drop later steps of files before it."""
  version = record(Event(wall_time=time.time(), file_version="brain.Event:2"))
  again = SessionLog(status=SessionLog.START)
  return version + record(Event(wall_time=time.time(), step=start_step + 1, session_log=again))


def scalars(step: int, metrics: dict[str, float]) -> bytes:
  """The metrics of a step."""
  values = [Summary.Value(tag=name, simple_value=value) for name, value in metrics.items()]
  return record(Event(wall_time=time.time(), step=step, summary=Summary(value=values)))


def picture(step: int, name: str, png: bytes) -> bytes:
  """A picture, as a PNG file."""
  value = Summary.Value(tag=name, image=Summary.Image(encoded_image_string=png))
  return record(Event(wall_time=time.time(), step=step, summary=Summary(value=[value])))


def record(event: Event) -> bytes:
  """An event in TensorFlow's record format: length, its checksum, data, its checksum."""
  data = event.SerializeToString()
  length = struct.pack("<Q", len(data))
  with_checksums = [piece + struct.pack("<I", masked_crc32c(piece)) for piece in (length, data)]
  return b"".join(with_checksums)
