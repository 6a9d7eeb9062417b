"""starts.jsonl: one line for each start of a run, with the command and the machine."""

import contextlib
import json

from vit_jax.storage import files
from vit_jax.storage.base import reading
from vit_jax.storage.paths import Path
from vit_jax.storage.workdir import STARTS

CLASSES = "classes.csv"  # in the folder IMAGES: the classes of its images
AUGMENTED = "augmented"  # folder in IMAGES: a picture for each operation of the augmentation
OPERATIONS = "operations.csv"  # in the folder AUGMENTED: the names of the operations
MAX_BYTES = 2**24  # most bytes of the file that are read


def add(workdir: Path, facts: dict):
  """Adds a line.

  Raises:
    OSError: it cannot be written.
  """
  with contextlib.closing(files.append(workdir / STARTS)) as lines:
    lines.add(json.dumps(facts).encode() + b"\n")


def read_starts(workdir: Path) -> list[dict]:
  """The facts of every start, in order, without damaged lines; [] if there is no file.

  Raises:
    OSError: the file cannot be read.
  """
  if not files.is_file(workdir / STARTS):
    return []
  with reading(workdir / STARTS), files.open_file(workdir / STARTS) as file:
    return [facts for facts in map(_facts, file.read(MAX_BYTES).splitlines()) if facts]


def _facts(line: bytes) -> dict:
  with contextlib.suppress(ValueError, RecursionError):
    facts = json.loads(line)
    if isinstance(facts, dict):
      return facts
  return {}
