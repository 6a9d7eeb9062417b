"""Makes the records of TensorBoard's event files, with tensorboardX's messages."""

import contextlib
import struct
import sys
import time
from collections.abc import Iterator


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


# tensorboardX imports torch if it is installed, which takes seconds and is not needed.
with without("torch"):
  from tensorboardX.proto.event_pb2 import Event, SessionLog
  from tensorboardX.record_writer import masked_crc32c
  from tensorboardX.summary import Summary


def beginning(start_step: int) -> bytes:
  """The first records of a file; in a resumed run they make TensorBoard drop the later steps."""
  version = record(Event(wall_time=time.time(), file_version="brain.Event:2"))
  if not start_step:
    return version
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
