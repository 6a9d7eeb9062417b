"""Paths that users give: on this machine, or on another storage, such as gs://bucket/run."""

import os
import pathlib
import posixpath
import re

from vit_jax import registry
from vit_jax.process.errors import ConfigError
from vit_jax.process.machine import LONGEST_PART

HERE = "file"  # the storage of paths that are not URLs
LONGEST_NAME = 1024  # bytes; the limit of keys in buckets
_URL = re.compile("([A-Za-z][A-Za-z0-9+.-]+):/")  # one slash, because pathlib merges the two


class UrlPath(pathlib.PurePosixPath):
  """A path on another storage; `storage.files` opens it and tells whether it exists.

  pathlib merges the two slashes of a URL; `str` writes both.
  """

  def __str__(self) -> str:
    return super().__str__().replace(":/", "://", 1)

  def __fspath__(self) -> str:
    # Otherwise `open` would look for a folder named "gs:" on this machine.
    raise TypeError(f"{self} is not on this machine; use the functions of vit_jax.storage.files")

  @property
  def scheme(self) -> str:
    """The kind of storage: "gs" of gs://bucket/run."""
    return self.parts[0].removesuffix(":")

  def absolute(self) -> "UrlPath":
    """Itself, because a URL is never relative."""
    return self


Path = pathlib.Path | UrlPath


def path_of(text: str | pathlib.PurePath) -> Path:
  """The path that a user gives for something on any storage.

  Raises:
    ConfigError: as `local_path`, the kind of storage is not known, or a URL has ".." or no bucket.
  """
  if not is_url(text):
    return local_path(text)
  path = UrlPath(str(text))
  if len(path.parts) < 2 or ":///" in str(text):
    raise ConfigError(f"{text} names no bucket; give {path.scheme}://BUCKET/FOLDER.")
  if ".." in path.parts:
    raise ConfigError(f'{path} has "..", which means nothing in a bucket; give the whole path.')
  return path


def is_url(text: str | pathlib.PurePath) -> bool:
  """Whether a path lies on another storage than this machine."""
  url = _URL.match(str(text))
  return bool(url) and url[1] in registry.STORAGES and url[1] != HERE


def absolute(text: str) -> str:
  """The absolute path of a path that a user gives."""
  if is_url(text):
    return text
  return os.path.abspath(os.path.expanduser(text))


def inside(folder: Path, name: str) -> Path:
  """The path in a folder for an untrusted name, such as a bucket's key or a name in a file.

  Every file of this machine that gets an untrusted name gets its path here.

  Args:
    folder: the folder.
    name: the name, with slashes, such as "state/d/1".

  Raises:
    ConfigError: the name could lead out of the folder, or no file can have it.
  """
  components = name.split("/")
  if not all(map(_is_plain, components)) or len(os.fsencode(name)) > LONGEST_NAME:
    raise ConfigError(
      f"{name[:100]!r} cannot be the name of a file in a folder, so nothing was copied: a name may "
      'have no part that is empty, "." or "..", that begins like a drive or has a backslash, or '
      f"that is longer than {LONGEST_PART} bytes; rename it where it lies."
    )
  return folder.joinpath(*components)


def _is_plain(component: str) -> bool:
  """Whether a file or folder can have this name on any system."""
  return (
    component not in ("", ".", "..")
    and not re.match("[A-Za-z]:", component)
    and not {"\\", "\0"} & set(component)
    and len(component.encode(errors="surrogatepass")) <= LONGEST_PART
  )


def within(folder: Path, text: str) -> Path:
  """The path that a file in a folder names: relative to the folder, absolute, or a URL.

  Raises:
    ConfigError: the folder lies in a bucket, and the path leads out of it.
  """
  if is_url(text):
    return path_of(text)
  if isinstance(folder, UrlPath):  # buckets do not resolve ".."
    path = UrlPath(posixpath.normpath(str(folder / text)))
    if os.path.isabs(text) or path.parts[:2] != folder.parts[:2]:
      raise ConfigError(f'The path "{text}" in "{folder}" leads out of the bucket; correct it.')
    return path
  return folder / text


def local_path(text: str | pathlib.PurePath) -> pathlib.Path:
  """A path on this machine that a user gives, with ~ or ~USER replaced by the home folder.

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
