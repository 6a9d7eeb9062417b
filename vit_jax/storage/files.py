"""All reading, writing, listing and locking of the files of a run, wherever they lie.

Each function finds the storage by the path: a `paths.UrlPath` has its own (`registry.STORAGES`),
and any other path is of this machine (`local.py`). Errors are OSErrors; a read that fails without
telling what lies at the path is a `base.CannotReadError`.
"""

import concurrent.futures
import contextlib
import errno
import fnmatch
import io
import json
import os
import pathlib
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO, TextIO

from vit_jax import registry
from vit_jax.process import csv_text
from vit_jax.process.errors import ConfigError
from vit_jax.storage.base import (
  FILE,
  FOLDER,
  NOTHING,
  AppendFile,
  Entry,
  FileVersion,
  Lock,
  Storage,
  reading,
)
from vit_jax.storage.paths import HERE, Path, UrlPath, inside, path_of

COPIES = 8  # files of a folder that are copied at once


def storage_of(path: Path | str) -> Storage:
  """The storage that a path is of."""
  return registry.STORAGES[path.scheme if isinstance(path, UrlPath) else HERE]


def _kind(path: Path) -> str:
  with reading(path):
    return storage_of(path).kind(path)


def exists(path: Path) -> bool:
  """Whether something is at a path, even a broken link."""
  return _kind(path) != NOTHING


def is_file(path: Path) -> bool:
  """Whether a file is at a path; a pipe or device is none."""
  return _kind(path) == FILE


def is_folder(path: Path) -> bool:
  """Whether a folder is at a path."""
  return _kind(path) == FOLDER


def matching(folder: Path, pattern: str = "*") -> list[Path]:
  """What lies in a folder under names such as "*.png", sorted; [] if there is no such folder."""
  with reading(folder):
    names = storage_of(folder).names(folder) if is_folder(folder) else []
  return [folder / name for name in sorted(names) if fnmatch.fnmatchcase(name, pattern)]


def scan(folder: Path) -> Iterator[Entry]:
  """What lies in a folder, in any order."""
  with reading(folder):
    yield from storage_of(folder).scan(folder)


def stamp(path: Path) -> FileVersion:
  """What tells a file from what it is after a change."""
  with reading(path):
    return storage_of(path).stamp(path)


def part(path: Path, stamp: FileVersion, start: int, stop: int) -> bytes | memoryview:
  """The bytes from `start` to before `stop` of a file.

  Raises:
    ChangedError: the file has another stamp, or is not there.
  """
  with reading(path):
    return storage_of(path).part(path, stamp, start, stop)


def at_once(path: Path, ask: Callable[[Any], Any], items: Iterable) -> list:
  """What `ask` returns for each item: at once, if each waits for the storage of `path`."""
  return storage_of(path).at_once(ask, items)


def numbers_in(folder: Path) -> list[int]:
  """The names in a folder that are numbers, ascending; "007" or other scripts' digits are not."""
  names = (path.name for path in matching(folder))
  return sorted(int(name) for name in names if re.fullmatch("0|[1-9][0-9]*", name))


def files_below(folder: Path) -> Iterator[str]:
  """The paths within a folder of all files in it and in its folders, such as "state/d/1"."""
  return (name for name, _ in sizes_below(folder))


def sizes_below(folder: Path) -> Iterator[tuple[str, int]]:
  """As `files_below`, each with its size in bytes."""
  with reading(folder):
    yield from storage_of(folder).sizes_below(folder)


def kvstore(folder: Path) -> dict:
  """A folder for TensorStore: the JSON of its key-value store."""
  return storage_of(folder).kvstore(folder)


def links_out(folder: Path, *, skipped: str) -> Iterator[pathlib.Path]:
  """All links in a folder of this machine, but for those in `skipped`, that lead out of it."""
  if isinstance(folder, UrlPath):  # which has no links
    return
  root = os.path.realpath(folder)
  for parent, folders, names in os.walk(folder):
    if parent == str(folder):
      folders[:] = set(folders) - {skipped}
    for path in (pathlib.Path(parent, name) for name in (*folders, *names)):
      if path.is_symlink() and not pathlib.Path(os.path.realpath(path)).is_relative_to(root):
        yield path


def identity(path: Path) -> Any:
  """What is equal for one folder under several paths."""
  if isinstance(path, UrlPath):
    return path
  stat = os.stat(path)
  return stat.st_dev, stat.st_ino


def links_in(folder: Path) -> set[str]:
  """The names of the links in a folder."""
  if isinstance(folder, UrlPath):
    return set()
  return {entry.name for entry in scan(folder) if entry.is_symlink()}


def real(path: Path) -> Path:
  """The whole path, without links and "..": equal for equal places."""
  return path.resolve() if isinstance(path, pathlib.Path) else path


def same(first: str, second: str) -> bool:
  """Whether two texts name the same path; False if one is empty, or no text."""
  if not (isinstance(first, str) and first and second):
    return False
  return real(path_of(first)) == real(path_of(second))


def check_writable(folder: Path):
  """Writes an empty file into a folder and removes it; OSError: it cannot be written to."""
  probe = folder / ".writable"
  write_bytes(probe, b"")
  remove(probe)


def open_file(path: Path | str) -> BinaryIO:
  """Opens a regular file for reading, unbuffered; never waits, as opening a pipe would."""
  with reading(path):
    return storage_of(path).open(path)


def open_text(path: Path | str, **options) -> TextIO:
  """As `open_file`, for text; options are those of `io.TextIOWrapper`."""
  return io.TextIOWrapper(io.BufferedReader(open_file(path)), **options)


def read_bytes(path: Path | str, *, most: int) -> bytes:
  """All bytes of a regular file; one of more than `most` bytes is an OSError."""
  with reading(path), open_file(path) as stream:
    size = stream.seek(0, io.SEEK_END)
    if size > most:
      raise OSError(errno.EFBIG, f"It is larger than {most:,} bytes ({size:,})", str(path))
    stream.seek(0)
    return stream.read()


def read_json(path: Path | str, *, most: int) -> dict:
  """The JSON object in a regular file of at most `most` bytes.

  Raises:
    OSError: as `read_bytes`.
    ValueError: it is not JSON, it is nested too deeply, or it is not an object.
  """
  try:
    value = json.loads(read_bytes(path, most=most))
  except RecursionError as error:
    raise ValueError("it is nested too deeply") from error
  if not isinstance(value, dict):
    raise ValueError("it is not a JSON object")
  return value


def make_folder(path: Path):
  """Makes a folder and its parents, if they do not exist."""
  storage_of(path).make_folder(path)


@contextlib.contextmanager
def atomic_write(path: Path, *, new: bool = False) -> Iterator[str]:
  """A path of this machine to write a file to, which becomes `path` when it is safe on disk.

  After an error, or if nothing was written, `path` stays as it was: missing, or the old file.

  Args:
    path: the file.
    new: whether to raise FileExistsError if there is a file already.

  Raises:
    OSError: the file cannot be written; the error names `path`. If the code inside cannot read
      another file, the error names that file.
  """
  storage = storage_of(path)
  partial = storage.partial(path)
  try:
    yield partial
    with contextlib.suppress(FileNotFoundError):  # another process wrote `path` and cleaned up
      storage.put(partial, path, new=new)
  except OSError as error:
    if error.filename in (None, partial):
      error.filename = str(path)
      del error.filename2  # of a rename; None would be shown as a name
    raise
  finally:
    pathlib.Path(partial).unlink(missing_ok=True)


def write_atomically(path: Path, fill: Callable[[str], None]):
  """Lets `fill` write a file, as `atomic_write`."""
  with atomic_write(path) as partial:
    fill(partial)


def create(path: Path, text: str) -> bool:
  """Writes a file of UTF-8, unless there is one; of several processes, only one writes it.

  Returns:
    Whether this process wrote it; otherwise read what the other one wrote, and compare.
  """
  try:
    with atomic_write(path, new=True) as partial:
      pathlib.Path(partial).write_text(text, encoding="utf-8")
  except FileExistsError:
    return False
  return True


def write_bytes(path: Path, data: bytes):
  """Writes a file, as `atomic_write`."""
  with atomic_write(path) as partial, open(partial, "wb") as file:
    file.write(data)


def write_text(path: Path, text: str):
  """Writes a file of UTF-8, as `atomic_write`."""
  write_bytes(path, text.encode())


def write_csv(path: Path, rows: Iterable[Iterable]):
  """Writes rows as CSV, by `csv_text`; escapes bytes that are not text."""
  with (
    atomic_write(path) as partial,
    open(partial, "w", newline="", encoding="utf-8", errors="backslashreplace") as file,
  ):
    for row in rows:
      file.write(csv_text.line(row))


def as_written(text: str) -> str:
  """A text as `write_csv` writes it: bytes of a file's name that are not text become escapes."""
  return text.encode(errors="backslashreplace").decode()


def append(path: Path) -> AppendFile:
  """Opens a file that grows by whole pieces, or creates it."""
  return storage_of(path).append(path)


@contextlib.contextmanager
def log(path: Path) -> Iterator[BinaryIO]:
  """A file of this machine for what processes print; what `path` has already stays before it.

  In a bucket, it appears at the end.
  """
  direct = storage_of(path).direct
  with contextlib.nullcontext(path.parent) if direct else tempfile.TemporaryDirectory() as folder:
    place = pathlib.Path(folder, path.name)
    if not direct and is_file(path):
      copy(path, place)
    with open(place, "ab", buffering=0) as output:
      yield output
    if not direct:
      copy(place, path)


def rename(path: Path, target: Path):
  """Renames a file or folder; the target appears at once."""
  storage_of(path).rename(path, target)


def set_aside(path: Path, target: Path) -> Path:
  """Renames a damaged file to `target`, or to TARGET-again if that exists; returns the new path."""
  while exists(target):
    target = target.with_name(f"{target.name}-again")
  remove(target)  # a killed process may have left a part that nobody sees
  rename(path, target)
  return target


def remove(path: Path):
  """Removes a file, or a folder as far as possible; a missing path is no error."""
  storage_of(path).remove(path)


def locked(path: Path) -> contextlib.AbstractContextManager[Lock]:
  """Holds a lock, which is free again however the process ends; BlockingIOError: it is held."""
  return storage_of(path).lock(path)


@contextlib.contextmanager
def one_writer(path: Path) -> Iterator[None]:
  """Holds the lock PATH.lock, which is removed at the end: for what consists of several writes.

  Raises:
    ConfigError: another process holds it.
  """
  lock = path.with_name(f"{path.name}.lock")
  with contextlib.ExitStack() as held:
    try:
      held.enter_context(locked(lock))
    except BlockingIOError as error:
      raise ConfigError(
        f"{path} is being written by another command; wait for its end, or give another name."
      ) from error
    held.callback(remove, lock)  # while it is held
    yield


@contextlib.contextmanager
def local_copy(path: Path) -> Iterator[pathlib.Path]:
  """A file or folder, for a library that reads by itself: where it is, or a copy of it."""
  if storage_of(path).direct:
    yield path
    return
  with tempfile.TemporaryDirectory() as scratch:
    place = inside(pathlib.Path(scratch), path.name)
    copy(path, place)
    yield place


def place_to_fill(folder: Path) -> Path:
  """Where a library may write what is to be in a folder: there, or in an empty folder here."""
  return folder if storage_of(folder).direct else pathlib.Path(tempfile.mkdtemp())


def bring(place: Path, folder: Path):
  """Brings what was written in a `place_to_fill` into its folder, and all of it to the disk."""
  if place != folder:
    copy(place, folder)
    remove(place)
  make_durable(folder)


def make_durable(folder: Path):
  """Returns once all files below a folder, and their names, would survive a crash."""
  paths = [folder / name for name in files_below(folder)]
  folders = {parent for path in paths for parent in path.parents if parent.is_relative_to(folder)}
  for path in (*paths, *folders):
    sync(path)


def sync(path: Path):
  """Returns once a file, or the names in a folder, would survive a crash of the machine."""
  storage_of(path).sync(path)


def copy(path: Path, target: Path):
  """Copies a file, or all files of a folder, also from one storage to another.

  Raises:
    ConfigError, OSError: as `copy_files`.
  """
  if is_folder(path):
    copy_files(path, target, files_below(path))
  else:
    _check_room([path], target.parent)
    _copy_file(path, target)


def copy_files(folder: Path, target: Path, names: Iterable[str], *, most: int | None = None):
  """Copies some files of a folder, after all of their names and sizes have been checked.

  Args:
    folder: where they lie.
    target: the folder that they are copied to, also on another storage.
    names: their paths within the folder.
    most: bytes of all of them; None: as many as the disk has room for.

  Raises:
    ConfigError: one has a name that `paths.inside` refuses.
    OSError: they are too large, or cannot be read or written.
  """
  places = {folder / name: inside(target, name) for name in names}
  _check_room(list(places), target, most)
  for parent in sorted({target, *(place.parent for place in places.values())}):
    make_folder(parent)
  with concurrent.futures.ThreadPoolExecutor(COPIES) as pool:
    list(pool.map(_copy_file, places.keys(), places.values()))


def _copy_file(path, target):
  with atomic_write(target) as partial, open(partial, "wb") as stream, open_file(path) as source:
    shutil.copyfileobj(source, stream)


def size(path: Path) -> int:
  """The bytes of a file."""
  with open_file(path) as stream:
    return stream.seek(0, io.SEEK_END)


def _check_room(paths: list[Path], target: Path, most: int | None = None):
  """Checks that files fit into a folder, if it is on this machine."""
  if isinstance(target, UrlPath) or not paths:
    return
  needed = sum(at_once(paths[0], size, paths))
  if most is not None and needed > most:
    raise OSError(
      errno.EFBIG,
      f"The files to be read have {needed:,} bytes, and at most {most:,} are read",
      str(paths[0].parent),
    )
  there = next(parent for parent in (target, *target.absolute().parents) if parent.exists())
  free = shutil.disk_usage(there).free
  if needed > free:
    raise OSError(
      errno.ENOSPC, f"The copy needs {needed:,} bytes, and the disk has {free:,} free", str(target)
    )
