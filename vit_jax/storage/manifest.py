"""The SHA-256 sums of a checkpoint's files, because array formats do not detect damaged bits."""

import hashlib
import json
import time
from collections.abc import Iterable

from vit_jax.storage import files
from vit_jax.storage.base import UnreachableError, reading
from vit_jax.storage.paths import Path
from vit_jax.storage.workdir import MANIFEST

ITEMS = ("state", "meta")
LARGEST = 100 * 2**20  # bytes of a manifest; each file needs less than 200
GONE = "it is gone"
SETTLED = 0.5  # seconds between two looks at a damage, which must be alike
NAMED = 3  # files named for each kind of damage


def write(folder: Path):
  """Writes the sums of all files of a complete checkpoint."""
  sums = {name: _sum(folder / name) for name in _files(folder)}
  files.write_bytes(folder / MANIFEST, _as_bytes(sums))


def _as_bytes(sums: dict[str, str]) -> bytes:
  return json.dumps(sums, indent=1, sort_keys=True).encode()


def _files(folder):
  return set(files.files_below(folder)) - {MANIFEST}


def _sum(path):
  with reading(path), files.open_file(path) as file:
    return hashlib.file_digest(file, "sha256").hexdigest()


def read(folder: Path) -> dict[str, str]:
  """The recorded sums of a checkpoint, by path within `folder`.

  Raises:
    OSError: the manifest cannot be read.
    ValueError: it differs, in any byte, from what `write` writes.
  """
  written = files.read_bytes(folder / MANIFEST, most=LARGEST)
  try:
    sums = json.loads(written)
  except RecursionError as error:
    raise ValueError("it is nested too deeply") from error
  if not isinstance(sums, dict) or _as_bytes(sums) != written:
    raise ValueError("it is not as it was written")
  return sums


def is_as_written(folder: Path, name: str) -> bool:
  """Whether a file of a checkpoint has the sum that was recorded."""
  try:
    return read(folder).get(name) == _sum(folder / name)
  except UnreachableError:
    raise
  except (OSError, ValueError):
    return False


def damage_of(folder: Path) -> str:
  """Describes the damage of a checkpoint: `GONE`, or a sentence; empty if every sum agrees.

  Unknown files beside the items are ignored: they are never read.
  """
  before, found = None, _look(folder)
  while found[0] not in ("", GONE) and found != before:  # until nobody is removing its files
    time.sleep(SETTLED)
    before, found = found, _look(folder)
  return found[0]


def _look(folder) -> tuple[str, set[str]]:
  """The damage of a checkpoint, and the files that are there."""
  if not files.is_folder(folder):
    return ("it is not a folder" if files.exists(folder) else GONE), set()
  if not (damage := _differences(folder)):
    return "", set()
  return (damage if files.exists(folder) else GONE), _files(folder)


def _differences(folder):
  try:
    expected = read(folder)
  except UnreachableError:
    raise
  except (OSError, ValueError) as error:
    return f"its {MANIFEST} cannot be read ({getattr(error, 'strerror', None) or error})"
  present = _files(folder)
  extra = {name for name in present - expected.keys() if name.partition("/")[0] in ITEMS}
  try:
    changed = {name for name in present & expected.keys() if _sum(folder / name) != expected[name]}
  except UnreachableError:
    raise
  except OSError as error:
    return f"{_in_words([error.filename])} cannot be read ({error.strerror})"
  kinds = (
    ("missing", expected.keys() - present),
    ("not in the manifest", extra),
    ("changed", changed),
  )
  return "; ".join(f"{what} {_in_words(names)}" for what, names in kinds if names)


def _in_words(names: Iterable[str]) -> str:
  """The first names; unusual characters, which may come from damage, are escaped."""
  names = sorted(names)
  more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
  return ", ".join(json.dumps(str(name))[1:-1] for name in names[:NAMED]) + more
