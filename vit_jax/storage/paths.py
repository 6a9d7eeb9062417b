"""Paths that users give: of this machine, or of another kind of storage, such as gs://bucket/run."""

import os
import pathlib
import posixpath
import re

from vit_jax import registry
from vit_jax.process.errors import ConfigError

HERE = "file"  # the storage of paths that are no URL
LONGEST_PART, LONGEST_NAME = 255, 1024  # bytes; of file systems, and of keys in buckets
_URL = re.compile("([A-Za-z][A-Za-z0-9+.-]+):/")  # one slash, because pathlib merges the two


class UrlPath(pathlib.PurePosixPath):
  """A path on another kind of storage. It has no `open` or `exists`: `storage.files` has.

  pathlib merges the two slashes of a URL; `str` writes both.
  """

  def __str__(self) -> str:
    return super().__str__().replace(":/", "://", 1)

  def __fspath__(self) -> str:
    # Otherwise `open` would look for a folder called "gs:" on this machine.
    raise TypeError(f"{self} is not on this machine; use the functions of vit_jax.storage.files")

  @property
  def scheme(self) -> str:
    """The kind of storage: "gs" of gs://bucket/run."""
    return self.parts[0].removesuffix(":")

  def absolute(self) -> "UrlPath":
    """The same path, because a URL is never relative."""
    return self


Path = pathlib.Path | UrlPath


def path_of(text: str | pathlib.PurePath) -> Path:
  """The path that a user gives for something that may lie on any kind of storage.

  Raises:
    ConfigError: as `local_path`, the kind of storage is not known, or a URL has "..".
  """
  if not is_url(text):
    return local_path(text)
  if ".." in (path := UrlPath(str(text))).parts:
    raise ConfigError(f'{path} has "..", which means nothing in a bucket; give the whole path.')
  return path


def is_url(text: str | pathlib.PurePath) -> bool:
  """Whether a path is of another kind of storage than this machine."""
  url = _URL.match(str(text))
  return bool(url) and url[1] in registry.STORAGES and url[1] != HERE


def absolute(text: str) -> str:
  """A path that a user gives, for any current directory."""
  return text if is_url(text) else os.path.abspath(os.path.expanduser(text))


def inside(folder: Path, name: str) -> Path:
  """The path in a folder for what has a name elsewhere: in a bucket, or in a stranger's file.

  Whoever writes to this machine what has a name from elsewhere gets the path here.

  Args:
    folder: where it is to be.
    name: its parts are separated by slashes, as "state/d/1".

  Raises:
    ConfigError: the name could lead out of the folder, or no file can have it.
  """
  parts = name.split("/")
  if not all(map(_is_plain, parts)) or len(os.fsencode(name)) > LONGEST_NAME:
    raise ConfigError(
      f"{name[:100]!r} cannot be the name of a file in a folder, so nothing was copied: a name may "
      'have no part that is empty, "." or "..", that begins like a drive or has a backslash, or '
      f"that is longer than {LONGEST_PART} bytes; rename it where it lies."
    )
  return folder.joinpath(*parts)


def _is_plain(part: str) -> bool:
  """Whether a part of a name is one of a file or folder, on any system."""
  return (
    part not in ("", ".", "..")
    and not re.match("[A-Za-z]:", part)
    and not {"\\", "\0"} & set(part)
    and len(part.encode(errors="surrogatepass")) <= LONGEST_PART
  )


def within(folder: Path, text: str) -> Path:
  """The path that a file in a folder names: relative to the folder, absolute, or a URL.

  Raises:
    ConfigError: a file in a bucket names what does not lie in a bucket, or in no bucket.
  """
  if is_url(text):
    return path_of(text)
  if isinstance(folder, UrlPath):  # whose storage does not know what ".." means
    path = UrlPath(posixpath.normpath(str(folder / text)))
    if os.path.isabs(text) or path.parts[:2] != folder.parts[:2]:
      raise ConfigError(f'The path "{text}" in "{folder}" leads out of the bucket; correct it.')
    return path
  return folder / text


def local_path(text: str | pathlib.PurePath) -> pathlib.Path:
  """The path of this machine that a user gives, with ~ or ~USER replaced by the home folder.

  Raises:
    ConfigError: there is no such user, or the path begins with the name of a storage.
  """
  if url := _URL.match(str(text)):
    _refuse(str(text), url[1])
  try:
    return pathlib.Path(text).expanduser()
  except RuntimeError as error:
    user = pathlib.Path(text).parts[0]
    raise ConfigError(f"{text}: there is no user {user} here; give another path.") from error


def _refuse(text: str, scheme: str):
  if scheme in registry.STORAGES or text.startswith(f"{scheme}://"):
    raise ConfigError(
      f"{text} is a URL, and only files and folders of this machine can be used: mount the storage "
      "as a folder and give its path."
    )
  known = " or ".join(f"{name}://" for name in registry.STORAGES if name != HERE)
  raise ConfigError(
    f'{text} begins with "{scheme}:", which is no kind of storage; give a path of this machine, '
    f"or, where buckets can be used, one that begins with {known}."
  )
