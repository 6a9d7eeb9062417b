"""The folder of a run: creates it, locks it against a second run, and writes its records.

config.json has the settings. starts.jsonl has one line for each start, with the command and the
machine.
"""

import contextlib
import errno
import json
import secrets
import socket
import time
from collections.abc import Callable

from vit_jax.process import agreement
from vit_jax.process.errors import ConfigError, RunError, StorageError
from vit_jax.process.text import listed
from vit_jax.storage import files
from vit_jax.storage.base import CannotReadError, Lock, UnreachableError, reading
from vit_jax.storage.paths import Path

LOCK = "lock"
CONFIG = "config.json"
CHECKPOINTS = "checkpoints"
MANIFEST = "manifest.json"  # in a checkpoint: the hashes of all its other files
EVALUATION = "evaluation.json"  # metrics of the last --mode=evaluate
DETAILS = "evaluation"  # DETAILS/NUMBER/SET/: tables and pictures of each evaluation
PARAMETERS = "parameters.txt"  # lists how each parameter is split over devices
METRICS = "metrics.jsonl"
STARTS = "starts.jsonl"
IMAGES = "training_images"  # folder of some images, saved at the first start
PICTURES = "pictures"
SHOWN_WITHIN = 10.0  # seconds in which a shared folder shows a new file to all hosts


class WriteError(StorageError):
  """The folder of the run cannot be written to; the message says why."""


def check_links(workdir: Path):
  """Checks that the folder, which may come from a stranger, has no links that lead out of it.

  The target of such a link would be shown in a report, or written to. The folder itself may be a
  link, and so may everything in `CHECKPOINTS`, which may be too large for the disk.

  Raises:
    ConfigError: names the link.
  """
  for link in files.links_out(workdir, skipped=CHECKPOINTS):
    raise ConfigError(
      f"{link} is a link out of the workdir {workdir}, and may lead to anything; replace it by "
      "what it leads to, or remove it."
    )


class LostError(RunError):
  """The run has lost the lock of its folder, and must not write there."""


_held: dict[Path, Lock] = {}  # the locks that this process holds, by workdir


@contextlib.contextmanager
def locked(workdir: Path, *, first: bool):
  """Makes and locks the folder; the operating system frees the lock however the run ends.

  Args:
    workdir: the folder.
    first: whether this is the first process of the run; only that process takes the lock.

  Raises:
    ConfigError: the folder cannot be made or written to, or another run has locked it.
  """
  with contextlib.ExitStack() as held:
    # Checked before the first step, not at the first save.
    check_writable(workdir, CHECKPOINTS)
    try:
      if first:
        with _refusing(workdir):
          _held[workdir.absolute()] = held.enter_context(files.locked(workdir / LOCK))
        held.callback(_held.pop, workdir.absolute())
    except BlockingIOError as error:
      raise ConfigError(
        f"--workdir={workdir} is in use by another run; wait for it to end, stop "
        "it, or choose another --workdir."
      ) from error
    yield


def check_writable(workdir: Path, inner: str):
  """Makes the folder, and checks that it can be written to, and so can `inner` in it, if there.

  Raises:
    ConfigError: it cannot.
  """
  with _refusing(workdir):
    files.make_folder(workdir)
    files.check_writable(workdir)
    if files.is_folder(workdir / inner):
      files.check_writable(workdir / inner)


@contextlib.contextmanager
def _refusing(workdir):
  try:
    yield
  except (BlockingIOError, UnreachableError):
    raise
  except OSError as error:
    raise ConfigError(
      f"--workdir={workdir} cannot be written to: {error.strerror} ({error.filename})."
    ) from error


def check_shared(workdir: Path):
  """Checks that all processes of the run see the same folder; each must call it.

  The first one writes a file of a new name, because a network file system may show an earlier
  content of a known one.

  Raises:
    ConfigError: on every process: one of them does not see the file.
    WriteError: the first process cannot write it.
  """

  def make() -> str:
    name = f".seen-{secrets.token_hex(8)}"
    with writing(workdir):
      files.write_bytes(workdir / name, b"")
    return name

  path = workdir / agreement.broadcast_str(make)
  until = time.monotonic() + SHOWN_WITHIN
  while not (seen := files.exists(path)) and time.monotonic() < until:
    time.sleep(0.5)
  without = agreement.allgather_str("" if seen else socket.gethostname())
  with writing(workdir):
    files.remove(path)
  if hosts := listed([*dict.fromkeys(filter(None, without))]):
    raise ConfigError(
      f"--workdir={workdir} is not one folder for all processes: what the first process writes "
      f"there is not seen on {hosts}; give a folder that all hosts share, or one in a bucket."
    )


def check_held(workdir: Path):
  """Checks that this process still holds the lock, if it took it; call it before the run writes.

  Raises:
    LostError: the lock was removed or replaced, and the folder still exists.
  """
  lock = _held.get(workdir.absolute())
  with contextlib.suppress(OSError):  # the storage may come back
    if lock and files.is_folder(workdir) and not lock.held():
      raise LostError(
        f"{workdir / LOCK} was removed or replaced while this run held it, or the folder was moved "
        f"away; another run may be writing to {workdir}, so this one ends here and writes nothing "
        "more. If you moved the folder, remove what a save under way has left at its old place "
        "before you bring it back. Otherwise make sure that no other run uses it. Then start the "
        "same command again. Locks need no removing: each is free as soon as its run has ended."
      )


@contextlib.contextmanager
def writing(workdir: Path):
  """Turns a file-system error inside into an error that names the folder.

  Raises:
    WriteError: the folder is gone, read-only or full.
    CannotReadError: a file that had to be read first cannot be read now.
  """
  try:
    yield
  except CannotReadError:
    raise
  except OSError as error:
    raise WriteError(
      f"The workdir {workdir} cannot be written to ({error}). Make room there, or bring it back; "
      "then start the same command again."
    ) from error


def details(folder: Path) -> list[Path]:
  """The folders of all sets of all evaluations, the newest evaluation first."""
  numbers = reversed(files.numbers_in(folder / DETAILS))
  children = (path for n in numbers for path in files.matching(folder / DETAILS / str(n)))
  return [path for path in children if files.is_folder(path)]


def write_details(workdir: Path, fill: Callable[[Path], None]) -> Path:
  """Lets `fill` fill a folder, which becomes DETAILS/NUMBER with the next number; returns its path.

  Several processes may do this at once, and readers see only complete folders. After an error the
  folder is removed.
  """
  parent = workdir / DETAILS
  partial = parent / f"{secrets.token_hex(8)}.partial"
  files.make_folder(partial)
  try:
    fill(partial)
    number = max(files.numbers_in(parent), default=0) + 1
    while not _claimed(partial, parent / str(number)):
      number += 1
  finally:
    files.remove(partial)
  return parent / str(number)


def _claimed(folder: Path, name: Path) -> bool:
  """Renames a nonempty folder; returns False if the name is taken."""
  try:
    files.rename(folder, name)
  except OSError as error:
    if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
      return False
    raise
  return True


def write_config(workdir: Path, config: dict):
  """Writes the whole resolved config, as a dictionary, to WORKDIR/config.json."""
  files.write_text(workdir / CONFIG, json.dumps(config, indent=2) + "\n")


CLASSES = "classes.csv"  # in the folder IMAGES: the classes of its images
AUGMENTED = "augmented"  # folder in IMAGES: a picture for each operation of the augmentation
OPERATIONS = "operations.csv"  # in the folder AUGMENTED: the names of the operations
MAX_BYTES = 2**24  # most bytes of the file that are read


def add_start(workdir: Path, facts: dict):
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
