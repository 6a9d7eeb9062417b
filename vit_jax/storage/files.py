"""Reads, writes, lists and locks the files of a run, on any storage.

Each function chooses the storage by the path: the scheme of a `paths.UrlPath` names it
(`registry.STORAGES`); any other path is on this machine (`local.py`). Errors are OSErrors; if a
read fails and the content of the path is unknown, the error is a `base.CannotReadError`.
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
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO, TextIO

from vit_jax import registry
from vit_jax.process import text
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

NO_WEIGHTS = "{} does not exist; give weights, a folder of them, or a workdir."
COPIES = 8  # files of a folder that are copied at once


def storage_of(path: Path | str) -> Storage:
  """The storage of a path."""
  scheme = path.scheme if isinstance(path, UrlPath) else HERE
  return registry.STORAGES[scheme]


def _kind(path: Path) -> str:
  with reading(path):
    return storage_of(path).kind(path)


def exists(path: Path) -> bool:
  """Whether something is at a path, even a broken link."""
  return _kind(path) != NOTHING


def check_weights(text: str):
  """Checks that weights on this machine exist, before the libraries that read them are loaded.

  Raises:
    ConfigError: they do not; or as `path_of`.
  """
  path = path_of(text)
  if isinstance(path, UrlPath):
    return
  with contextlib.suppress(OSError):  # reading it says why
    if not exists(path):
      raise ConfigError(NO_WEIGHTS.format(path))


def is_file(path: Path) -> bool:
  """Whether a regular file is at a path, not a pipe or device."""
  return _kind(path) == FILE


def is_folder(path: Path) -> bool:
  """Whether a folder is at a path."""
  return _kind(path) == FOLDER


def matching(folder: Path, pattern: str = "*") -> list[Path]:
  """The paths in a folder whose names match, such as "*.png"; sorted; [] if there is no folder."""
  with reading(folder):
    if not is_folder(folder):
      return []
    names = storage_of(folder).names(folder)
  return [folder / name for name in sorted(names) if fnmatch.fnmatchcase(name, pattern)]


def scan(folder: Path) -> Iterator[Entry]:
  """The entries of a folder, in any order."""
  with reading(folder):
    yield from storage_of(folder).scan(folder)


def stamp(path: Path) -> FileVersion:
  """The version of a file."""
  with reading(path):
    return storage_of(path).stamp(path)


def listed_stamps(folder: Path) -> dict[str, FileVersion] | None:
  """The versions of the files in a folder by name, if a listing tells them; None on a disk."""
  if not isinstance(folder, UrlPath):
    return None
  return {entry.name: entry.stamp for entry in scan(folder) if entry.is_file()}


def part(path: Path, stamp: FileVersion, start: int, stop: int) -> bytes | memoryview:
  """The bytes from `start` to before `stop` of a file.

  Raises:
    ChangedError: the file has another stamp, or is not there.
  """
  with reading(path):
    return storage_of(path).part(path, stamp, start, stop)


def at_once(path: Path, ask: Callable[[Any], Any], items: Iterable) -> list:
  """The results of `ask` for each item; in parallel, if calls wait for the storage of `path`."""
  return storage_of(path).at_once(ask, items)


def numbers_in(folder: Path) -> list[int]:
  """The names in a folder that are numbers, ascending; not "007" or digits of other scripts."""
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
  """A folder as the JSON of a TensorStore key-value store."""
  return storage_of(folder).kvstore(folder)


def links_out(folder: Path, *, skipped: str) -> Iterator[pathlib.Path]:
  """All links that lead out of a folder of this machine, except those in the folder `skipped`."""
  if isinstance(folder, UrlPath):  # buckets have no links
    return
  root = os.path.realpath(folder)
  for parent, folders, names in os.walk(folder):
    if parent == str(folder):
      folders[:] = set(folders) - {skipped}
    for path in (pathlib.Path(parent, name) for name in (*folders, *names)):
      if path.is_symlink() and not pathlib.Path(os.path.realpath(path)).is_relative_to(root):
        yield path


def identity(path: Path) -> Any:
  """An identity of a folder, equal for all paths of it."""
  if isinstance(path, UrlPath):
    return path
  stat = os.stat(path)
  return stat.st_dev, stat.st_ino


def links_in(folder: Path) -> set[str]:
  """The names of the links in a folder; none if there is no such folder."""
  if isinstance(folder, UrlPath) or not folder.is_dir():
    return set()
  return {entry.name for entry in scan(folder) if entry.is_symlink()}


def real(path: Path) -> Path:
  """The absolute path without links and "..", equal for all paths of one file or folder."""
  if isinstance(path, pathlib.Path):
    return path.resolve()
  return path


def same(first: str, second: str) -> bool:
  """Whether two texts name the same path; False if one is empty or not a text."""
  if not (isinstance(first, str) and first and second):
    return False
  return real(path_of(first)) == real(path_of(second))


def check_writable(folder: Path):
  """Writes an empty file into a folder and removes it; OSError if the folder is not writable."""
  probe = folder / f".writable-{secrets.token_hex(8)}"  # several processes may do this at once
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
  """All bytes of a regular file; OSError if there are more than `most`."""
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
  """A path on this machine to write a file to, which replaces `path` when it is safe on disk.

  After an error, or if nothing was written, `path` stays as it was: missing, or the old file.

  Args:
    path: the file.
    new: whether to raise FileExistsError if there is a file already.

  Raises:
    OSError: the file cannot be written; the error names `path`. If the `with` block cannot read
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


def create(path: Path, text: str) -> bool:
  """Writes a UTF-8 file, unless it exists; if several processes try, only one writes it.

  Returns:
    Whether this process wrote it; if not, the caller should read the file and compare.
  """
  try:
    with atomic_write(path, new=True) as partial:
      pathlib.Path(partial).write_text(text, encoding="utf-8")
  except FileExistsError:
    return False
  return True


def write_bytes(path: Path, data: bytes):
  """Writes a file, as by `atomic_write`; to a bucket also if the disk of this machine is full."""
  storage = storage_of(path)
  if not storage.direct:
    storage.put_bytes(path, data)
    return
  with atomic_write(path) as partial, open(partial, "wb") as file:
    file.write(data)


def write_text(path: Path, text: str):
  """Writes a UTF-8 file, as by `atomic_write`."""
  write_bytes(path, text.encode())


def write_csv(path: Path, rows: Iterable[Iterable]):
  """Writes rows as CSV, by `csv_line`; escapes bytes that are not text."""
  with (
    atomic_write(path) as partial,
    open(partial, "w", newline="", encoding="utf-8", errors="backslashreplace") as file,
  ):
    for row in rows:
      file.write(text.csv_line(row))


def as_written(text: str) -> str:
  """The text as `write_csv` writes it: undecodable bytes of a file's name become escapes."""
  return text.encode(errors="backslashreplace").decode()


def append(path: Path) -> AppendFile:
  """Opens a file that grows by whole pieces, or creates it."""
  return storage_of(path).append(path)


@contextlib.contextmanager
def log(path: Path) -> Iterator[BinaryIO]:
  """A file of this machine for the output of processes; it is appended to the content of `path`.

  In a bucket, the output appears at the end.
  """
  if storage_of(path).direct:
    with open(path, "ab", buffering=0) as output:
      yield output
    return
  with tempfile.TemporaryDirectory() as folder:
    place = pathlib.Path(folder, path.name)
    if is_file(path):
      copy(path, place)
    with open(place, "ab", buffering=0) as output:
      yield output
    copy(place, path)


def rename(path: Path, target: Path):
  """Renames a file or folder; the target appears at once."""
  storage_of(path).rename(path, target)


def set_aside(path: Path, target: Path) -> Path:
  """Renames a damaged file to `target`, or to TARGET-again if that exists; returns the new path."""
  while exists(target):
    target = target.with_name(f"{target.name}-again")
  remove(target)  # a killed process may have left invisible files
  rename(path, target)
  return target


def remove(path: Path):
  """Removes a file, or a folder as far as possible; a missing path is no error."""
  storage_of(path).remove(path)


def locked(path: Path) -> contextlib.AbstractContextManager[Lock]:
  """Holds a lock, which becomes free however the process ends; BlockingIOError if it is held."""
  return storage_of(path).lock(path)


def is_locked(path: Path) -> bool:
  """Whether a process holds a lock."""
  return storage_of(path).is_locked(path)


@contextlib.contextmanager
def one_writer(path: Path) -> Iterator[None]:
  """Holds the lock PATH.lock during several writes, and removes it at the end.

  Raises:
    ConfigError: another process holds it.
  """
  whole = path.absolute()  # "." has no name
  lock = whole.with_name(f"{whole.name}.lock")
  with contextlib.ExitStack() as held:
    try:
      held.enter_context(locked(lock))
    except BlockingIOError as error:
      raise ConfigError(
        f"{path} is being written by another command; wait for its end, or give another name."
      ) from error
    held.callback(remove, lock)  # runs while the lock is still held
    yield


@contextlib.contextmanager
def local_copy(path: Path) -> Iterator[pathlib.Path]:
  """A file or folder for a library that reads by itself: its own path, or a local copy's."""
  if storage_of(path).direct:
    yield path
    return
  with tempfile.TemporaryDirectory() as scratch:
    place = inside(pathlib.Path(scratch), path.name)
    copy(path, place)
    yield place


def place_to_fill(folder: Path) -> Path:
  """Where a library can write the content of a folder: there, or in an empty local folder."""
  if storage_of(folder).direct:
    return folder
  return pathlib.Path(tempfile.mkdtemp())


def bring(place: Path, folder: Path):
  """Moves the content of a `place_to_fill` into its folder, and syncs it to the disk."""
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
  """Copies a file, or all files of a folder, within or between storages.

  Raises:
    ConfigError, OSError: as `copy_files`.
  """
  if is_folder(path):
    copy_files(path, target, files_below(path))
  else:
    _check_room([path], target.parent)
    _copy_file(path, target)


def copy_files(folder: Path, target: Path, names: Iterable[str], *, most: int | None = None):
  """Copies some files of a folder, after checking all names and sizes.

  Args:
    folder: the folder that holds them.
    target: the folder to copy to, on any storage.
    names: their paths within the folder.
    most: most bytes of all files; None: as many as the disk has room for.

  Raises:
    ConfigError: `paths.inside` refuses a name.
    OSError: the files are too large, or cannot be read or written.
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
