"""SHA-256 hashes of a checkpoint's files, because array formats do not detect damaged bits."""

import concurrent.futures
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
READS = 8  # files that are hashed at once
SETTLED = 0.5  # seconds between two looks at a damage, which must agree
PART = "sums-of-process-"  # files with the hashes of each process, until there is a manifest
NAMED = 3  # files named for each kind of damage


def write_part(folder: Path, beginning: str, process: int):
  """Writes the hashes of the files of one process, whose paths begin with BEGINNING and its number.

  So the first process, which writes the manifest, need not read the files of the others.
  """
  if not process:
    return
  prefix = f"{beginning}{process}/"
  names = (name for name in files.files_below(folder) if name.startswith(prefix))
  sums = {name: _sum(folder / name) for name in names}
  files.write_bytes(folder / f"{PART}{process}", _as_bytes(sums))


def write(folder: Path):
  """Writes the hashes of all files of a complete checkpoint; uses those that processes wrote."""
  known = {}
  for path in files.matching(folder, f"{PART}*"):
    known |= json.loads(files.read_bytes(path, most=LARGEST))
    files.remove(path)
  sums = {name: known.get(name) or _sum(folder / name) for name in _files(folder)}
  files.write_bytes(folder / MANIFEST, _as_bytes(sums))


def _as_bytes(sums: dict[str, str]) -> bytes:
  return json.dumps(sums, indent=1, sort_keys=True).encode()


def _files(folder):
  return set(files.files_below(folder)) - {MANIFEST}


def _sum(path):
  with reading(path), files.open_file(path) as file:
    return hashlib.file_digest(file, "sha256").hexdigest()


def read_sums(folder: Path) -> dict[str, str]:
  """The recorded hashes of a checkpoint, by path within `folder`.

  Raises:
    OSError: the manifest cannot be read.
    ValueError: the manifest differs in any byte from the form that `write` writes.
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
  """Whether a file of a checkpoint has the recorded hash."""
  try:
    return read_sums(folder).get(name) == _sum(folder / name)
  except UnreachableError:
    raise
  except (OSError, ValueError):
    return False


def damage_of(folder: Path) -> str:
  """Describes the damage of a checkpoint: `GONE`, or a sentence; "" if all hashes agree."""
  return part_of_damage(folder, 0, 1)[0]


def part_of_damage(folder: Path, process: int, processes: int) -> tuple[str, str]:
  """As `damage_of`, for the share of the checkpoint that one of several processes checks.

  The shares have about the same number of bytes, and together are all files if the processes see
  the same files. Unknown files outside of `ITEMS` are ignored, because they are never read.

  Returns:
    The damage, and a hash of the names and sizes of the files that this process sees.
  """
  before = None
  found = _look(folder, process, processes)
  while found[0] not in ("", GONE) and found != before:  # another process may be removing files
    time.sleep(SETTLED)
    before = found
    found = _look(folder, process, processes)
  damage, sizes = found
  return damage, hashlib.sha256(json.dumps(sizes, sort_keys=True).encode()).hexdigest()


def _look(folder, process, processes) -> tuple[str, dict[str, int]]:
  """The damage of a checkpoint, and the sizes of its files."""
  if not files.is_folder(folder):
    return ("it is not a folder" if files.exists(folder) else GONE), {}
  sizes = dict(files.sizes_below(folder))
  damage = _differences(folder, sizes.keys() - {MANIFEST}, _share(sizes, process, processes))
  if damage and not files.exists(folder):
    damage = GONE
  return damage, sizes


def _share(sizes: dict[str, int], process: int, processes: int) -> set[str]:
  """The files that a process hashes: each goes to the process with the fewest bytes so far."""
  loads = [0] * processes
  mine = set()
  for name in sorted(sizes, key=lambda name: (-sizes[name], name)):
    least = loads.index(min(loads))
    loads[least] += sizes[name]
    if least == process:
      mine.add(name)
  return mine


def _differences(folder, present, share):
  try:
    expected = read_sums(folder)
  except UnreachableError:
    raise
  except (OSError, ValueError) as error:
    return f"its {MANIFEST} cannot be read ({getattr(error, 'strerror', None) or error})"
  extra = {name for name in present - expected.keys() if name.partition("/")[0] in ITEMS}
  mine = present & expected.keys() & share
  try:
    with concurrent.futures.ThreadPoolExecutor(READS) as pool:
      found = dict(zip(mine, pool.map(lambda name: _sum(folder / name), mine), strict=True))
    changed = {name for name, digest in found.items() if digest != expected[name]}
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
  more = ""
  if len(names) > NAMED:
    more = f" and {len(names) - NAMED} more"
  return ", ".join(json.dumps(str(name))[1:-1] for name in names[:NAMED]) + more
