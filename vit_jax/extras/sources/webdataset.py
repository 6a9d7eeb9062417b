"""WebDataset: tar files in which KEY.jpg and KEY.cls, or KEY.json, are an example."""

import contextlib
import hashlib
import io
import itertools
import json
import os
import pathlib
import posixpath
import re
import tarfile
import zipfile
from collections.abc import Iterable, Iterator

import numpy as np

from vit_jax.config import Dataset
from vit_jax.data import byte_ranges, image_files
from vit_jax.data.sources import table
from vit_jax.data.sources.base import Block, ColumnError, Example, SourceError
from vit_jax.extras.sources import splits
from vit_jax.process.text import shown
from vit_jax.storage import files
from vit_jax.storage.base import ChangedError, FileVersion, UnreachableError
from vit_jax.storage.paths import Path, path_of

INDICES = pathlib.Path("~/.cache/vit_jax/tars")
_SUFFIX = ".tar"
_FORMAT = 2  # version of the index
_MEMBER = re.compile(r"(?P<key>(?:.*/)?[^./][^./]*)\.(?P<extension>[^/]+)")  # no hidden files
_BRACES = re.compile(r"(?P<before>.*?)\{(?P<inside>[^{}]*)\}(?P<after>.*)")
_RANGE = re.compile(r"([0-9]{1,9})\.\.([0-9]{1,9})")
_MOST_FILES = 10**6
_MOST_BYTES = 2**20  # of a member with labels


class WebDataset(table.Table):
  """The examples of tar files, ordered by file, and within a file by their first members.

  Images are read from their places in the tar files; nothing is unpacked. The first time that a
  file is opened, it is read once, and its index is kept in `INDICES`. The index is used as long as
  the stamp of the file is the same.

  Args:
    pattern: a path with {000..127} or {a,b}, or a folder with *.tar files in it or below it.
    split: a word in the names of the files, and a range: "train", "train[:90%]", "[:90%]", "".
    image_key: the extension of the images, in any case; "image": any extension of image files.
    label_key: the extension of the labels, in any case, or else a field of the members KEY.json;
      "label": the extension "cls", or else the field "label"; "": no labels.

  Raises:
    SourceError: a file does not exist or is damaged, or examples have no labels.
    ChangedError: from an item: the file was changed or removed.
    OSError: from an item: the file cannot be read.
  """

  form = "wds:PATTERN"

  def __init__(
    self,
    pattern: str,
    *,
    split: str = "",
    image_key: str = Dataset().image_key,
    label_key: str = Dataset().label_key,
  ):
    name, cut = splits.divided(split)
    root, below, hidden = _expanded(pattern)
    below, unused = splits.of_split(pattern, below, name)
    self._paths = paths = [root / file for file in below]
    self.distant = byte_ranges.distant(root)
    self._stamps = _stamps(pattern, paths)

    def index_of(path_and_stamp):
      return _index(*path_and_stamp, image_key.lower(), label_key)

    indices = files.at_once(root, index_of, zip(paths, self._stamps, strict=True))
    self.notes = [*hidden, *unused, *_notes(paths, indices)]
    counts = [len(index["keys"]) for index in indices]
    if not any(counts):
      raise SourceError(f'The files of "wds:{pattern}" hold no examples with images; give others.')
    keys = np.concatenate([index["keys"] for index in indices])
    places = np.concatenate([index["places"] for index in indices])
    labels = table.Labels.none(sum(counts))
    if label_key:
      with table.naming(f"wds:{pattern}"):
        labels = _labels(np.concatenate([index["labels"] for index in indices]))
    # Places and sizes distinguish files with other images under the same names.
    digests = [hashlib.sha256(index["places"]).hexdigest()[:16] for index in indices]
    named = [os.fsencode(f"{file} {digest}/") for file, digest in zip(below, digests, strict=True)]
    files_of = np.repeat(np.array(named), counts)
    super().__init__("wds", np.char.add(files_of, keys), labels, cut)
    self._keys = keys[self.rows]
    self._places = places[self.rows]
    self._files = np.repeat(np.arange(len(paths)), counts)[self.rows]

  def __getitem__(self, index: int) -> Example:
    number = self._files[index]
    begin, size = self._places[index].tolist()
    stop = begin + min(size, image_files.MAX_BYTES)
    image = byte_ranges.part(self._paths[number], self._stamps[number], begin, stop)
    return Example(bytes(image), self.labels(index), self.name(index))

  def name(self, index: int) -> str:
    """The path of the tar file, and the key of the example in it."""
    return f"{self._paths[self._files[index]]}/{os.fsdecode(bytes(self._keys[index]))}"

  def size(self, index: int) -> int:
    """The bytes of the image in its tar file."""
    return int(self._places[index, 1])

  def blocks(self) -> Iterator[Block]:
    """The places of the images in each tar file."""
    for number, path in enumerate(self._paths):
      rows = np.flatnonzero(self._files == number)
      yield Block(str(files.real(path)), self._places[rows, 0], rows)

  @classmethod
  def named_parts(cls, argument: str) -> dict[str, tuple[str, str]]:
    """The splits in the names of the files."""
    return splits.parts_of(argument, _expanded(argument)[1])

  @classmethod
  def recognises(cls, path: Path) -> bool:
    """Whether the path ends in .tar, or is a folder with such a file."""
    return str(path).endswith(_SUFFIX) or table.holds(path, [path], f"*{_SUFFIX}", cls.form)


def _expanded(pattern: str) -> tuple[Path, list[str], list[str]]:
  """What a pattern names.

  Returns:
    A folder; the paths in it, in the order of the pattern, or sorted for a folder; notes on them.
  """
  path = path_of(pattern).absolute()
  if files.is_folder(path):
    paths, notes = image_files.of_suffix(path, _SUFFIX)
    if not paths:
      raise SourceError(f'"{path}" has no *.tar files; give a folder that has some, or a pattern.')
    return path, paths, notes
  paths = list(map(path_of, itertools.islice(_without_braces(str(path)), _MOST_FILES)))
  if len({path.anchor or path.parts[:2] for path in paths}) > 1:
    raise SourceError(f'The files of "wds:{pattern}" lie in several buckets; name one of them.')
  root = path_of(posixpath.commonpath([str(path.parent) for path in paths]))
  return root, [str(path.relative_to(root)) for path in paths], []


def _stamps(pattern: str, paths: list[Path]) -> list[FileVersion]:
  """The stamps of all files, which must exist."""
  stamps, missing = byte_ranges.stamps_of(paths)
  if missing:
    raise SourceError(
      f'{len(missing):,} of the {len(paths):,} files of "wds:{pattern}" do not exist, the first is '
      f'"{paths[missing[0]]}"; a pattern is such as shards/{{000..127}}.tar.'
    )
  return stamps


def _without_braces(pattern: str) -> Iterator[str]:
  """Expands braces as bash does: {08..11} becomes 08, 09, 10 and 11, and {2..0} 2, 1 and 0."""
  match = _BRACES.fullmatch(pattern)
  if not match:
    yield pattern
    return
  for text in _alternatives(match["inside"]):
    yield from _without_braces(f"{match['before']}{text}{match['after']}")


def _alternatives(inside: str) -> Iterable[str]:
  """The texts that a pair of braces stands for: a range, or a list with commas."""
  ends = _RANGE.fullmatch(inside)
  if not ends:
    return inside.split(",")
  first, last = ends.groups()
  width = 0
  if re.match("0[0-9]", first) or re.match("0[0-9]", last):
    width = max(len(first), len(last))
  step = 1 if int(first) <= int(last) else -1
  return (f"{number:0{width}}" for number in range(int(first), int(last) + step, step))


def _index(path: Path, stamp: FileVersion, image_key: str, label_key: str) -> dict[str, np.ndarray]:
  """The index of a tar file: the one that was kept, or a new one.

  Returns:
    keys (n,) bytes, unique in the file; places (n, 2), begin and size of each image; labels (n,)
    bytes, a string or a list of strings in JSON; stamp (2,), of the file; left_out, a sentence
    about members that are not examples.
  """
  name = repr((_FORMAT, str(files.real(path)), image_key, label_key))
  digest = hashlib.sha256(os.fsencode(name)).hexdigest()
  kept = INDICES / f"{digest[:32]}.npz"
  if index := _kept(kept, stamp):
    return index
  try:
    with files.open_file(path) as raw, io.BufferedReader(raw) as stream:
      index = _made(path, stream, image_key, label_key)
  except (SourceError, UnreachableError):
    raise
  except (OSError, tarfile.TarError, ValueError, OverflowError) as error:
    hint = ""
    if path.name.endswith(("gz", "bz2", "xz", "zst")):
      hint = "; unpack compression first"
    raise SourceError(f'"{path}" cannot be read as a tar file: {error}{hint}.') from error
  now = None
  with contextlib.suppress(FileNotFoundError):
    now = files.stamp(path)
  if now != stamp:  # the file may have been replaced while it was read
    raise ChangedError(path)
  index["stamp"] = np.array(list(map(str, stamp)))
  _keep(kept, index)
  return index


def _keep(path: pathlib.Path, index: dict[str, np.ndarray]):
  """Writes an index; without space or a home folder, it is made again next time."""
  try:
    files.make_folder(path.expanduser().parent)
    with files.atomic_write(path.expanduser()) as partial, open(partial, "wb") as stream:
      np.savez(stream, **index)
  except (OSError, RuntimeError):
    pass


def _kept(path: pathlib.Path, stamp: FileVersion) -> dict[str, np.ndarray] | None:
  """The index that was kept; None if there is none, or it is damaged or of another stamp."""
  try:
    with open(path.expanduser(), "rb") as stream, np.load(stream, allow_pickle=False) as arrays:
      index = dict(arrays)
    if index["stamp"].tolist() == list(map(str, stamp)):
      return index
  except (OSError, RuntimeError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
    pass
  return None


def _made(path: Path, stream, image_key: str, label_key: str) -> dict[str, np.ndarray]:
  """Reads the headers of all members, and the labels."""
  examples, left_out = _examples(path, stream)
  keys = []
  places = []
  labels = []
  for key, members in examples.items():
    extension = _image(path, key, members, image_key)
    if not extension:
      left_out.add("examples without an image", key)
      continue
    keys.append(os.fsencode(key))
    places.append(members[extension])
    labels.append(json.dumps(_label(path, key, stream, members, label_key)).encode())
  return {
    "keys": np.array(keys, bytes),
    "places": np.array(places, np.int64).reshape(-1, 2),
    "labels": np.array(labels, bytes),
    "left_out": np.array(left_out.in_words()),
  }


def _examples(path: Path, stream) -> tuple[dict, image_files.LeftOut]:
  """{key: {extension: (begin, size)}} of all members, and the members that are left out."""
  examples = {}
  left_out = image_files.LeftOut()
  with tarfile.open(fileobj=stream, mode="r:") as tar:
    members = tar.getmembers()
    # tarfile stops without an error at a damaged header, or where a file was cut off.
    stream.seek(tar.offset)
    end = stream.read(tarfile.RECORDSIZE)
    if any(end) or not end:
      raise tarfile.ReadError(f"at byte {tar.offset} is neither a member nor the mark of the end")
  files_of = {posixpath.normpath(member.name): member for member in members if member.isreg()}
  for member in members:
    match = _MEMBER.fullmatch(member.name)
    file = member
    if member.islnk() or member.issym():
      file = files_of.get(_target(member))
    if reason := _left_out(member, match, file):
      left_out.add(reason, member.name)
    elif match and not member.isdir():
      extension = match["extension"].lower()
      places = examples.setdefault(match["key"], {})
      if extension in places:
        raise SourceError(f'"{path}" has the member {member.name!r} twice; write it again.')
      places[extension] = (file.offset_data, file.size)
  return examples, left_out


def _target(link: tarfile.TarInfo) -> str:
  """The name of the member that a link leads to."""
  target = link.linkname
  if link.issym():  # relative to the folder of the link
    target = posixpath.join(posixpath.dirname(link.name), target)
  return posixpath.normpath(target)


def _left_out(member: tarfile.TarInfo, match: re.Match | None, file: tarfile.TarInfo | None) -> str:
  """Why a member does not belong to an example, as a plural; "" if it does, or is a folder.

  Args:
    member: a member of a tar file.
    match: its name, matched by `_MEMBER`.
    file: the member that holds its bytes; None if there is none.
  """
  if member.isdir():
    return ""
  if not match:
    return "members that are not KEY.EXTENSION"
  if file is None:
    return "links to members that are not there"
  if file.issparse():
    return "sparse files, whose bytes lie in pieces"
  if not file.isreg():
    return "devices"
  return ""


def _image(path: Path, key: str, members: dict, image_key: str) -> str:
  """The extension of an example's image; "" if it has none."""
  if image_key != Dataset().image_key:
    return image_key if image_key in members else ""
  images = [name for name in members if f".{name.split('.')[-1]}" in image_files.SUFFIXES]
  if len(images) > 1:
    raise ColumnError(
      f'"{path}" has several images of {key!r}: {shown(images)}{_dots(images)}; name one by '
      "image_key."
    )
  return images[0] if images else ""


def _dots(extensions: Iterable[str]) -> str:
  """A remark on keys, if extensions with dots show that the user may not know their rule."""
  if any("." in extension for extension in extensions):
    return " (a key ends at the first dot of a name, so keys must hold no dots)"
  return ""


def _label(path: Path, key: str, stream, members: dict, label_key: str) -> str | list[str]:
  """The label of an example, or its labels."""
  if not label_key:
    return ""
  extension = "cls" if label_key == Dataset().label_key else label_key.lower()
  place = members.get(extension, members.get("json"))
  if not place or place[1] > _MOST_BYTES:
    raise ColumnError(
      f'"{path}" has no label of {key!r}, which has {shown(list(members))}{_dots(members)}; name '
      'the extension or the field of .json by label_key, or set label_key="" to read no labels.'
    )
  stream.seek(place[0])
  data = stream.read(place[1])
  if extension in members:
    return data.decode(errors="surrogateescape").strip()
  try:
    value = json.loads(data)[label_key]
    if not all(isinstance(label, str | int) for label in _as_list(value)):
      raise TypeError(f"it is {shown(value)}")
  except (ValueError, KeyError, TypeError, RecursionError) as error:
    raise SourceError(
      f'"{path}" has no name or number in the field {label_key!r} of {key}.json ({error}).'
    ) from error
  if isinstance(value, list):
    return list(map(str, value))
  return str(value)


def _as_list(value) -> list:
  return value if isinstance(value, list) else [value]


def _labels(texts: np.ndarray) -> table.Labels:
  """The labels of all examples, from JSON."""
  values = [json.loads(text) for text in texts.tolist()]
  if not any(isinstance(value, list) for value in values):
    return table.Labels.of_names(values)
  several = list(map(_as_list, values))
  return table.Labels.of_names(itertools.chain(*several), list(map(len, several)))


def _notes(paths: list[Path], indices: list[dict]) -> list[str]:
  """Notes on members that are left out, and on files without examples."""
  notes = []
  odd = [path for path, index in zip(paths, indices, strict=True) if index["left_out"]]
  if odd:
    words = indices[paths.index(odd[0])]["left_out"]
    note = f'Left out of "{odd[0]}": {words}'
    if len(odd) > 1:
      note += f", and of {len(odd) - 1} other files"
    notes.append(f"{note}.")
  empty = [path for path, index in zip(paths, indices, strict=True) if not len(index["keys"])]
  if empty:
    notes.append(f'{len(empty)} files have no examples ("{empty[0]}").')
  return notes
