"""starts.jsonl: one line for each time that a run was started, with the command and the machine."""

import contextlib
import json
import pathlib

from vit_jax.storage.files import Appender
from vit_jax.storage.workdir import STARTS

CLASSES = "classes.csv"  # of the images that are kept, in the folder IMAGES
MAX_BYTES = 2**24  # bytes that are read


def add(workdir: pathlib.Path, facts: dict):
  """Adds a line.

  Raises:
    OSError: it cannot be written.
  """
  with contextlib.closing(Appender(workdir / STARTS)) as lines:
    lines.add(json.dumps(facts).encode() + b"\n")


def read(workdir: pathlib.Path) -> list[dict]:
  """The facts of every start, in order; without lines that are damaged, [] without the file.

  Raises:
    OSError: the file cannot be read.
  """
  path = workdir / STARTS
  if not path.is_file():
    return []
  with path.open("rb") as file:
    found = map(_facts, file.read(MAX_BYTES).splitlines())
    return [facts for facts in found if facts]


def _facts(line: bytes) -> dict:
  with contextlib.suppress(ValueError, RecursionError):
    facts = json.loads(line)
    if isinstance(facts, dict):
      return facts
  return {}
