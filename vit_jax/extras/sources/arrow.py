"""Columns of Arrow tables: which hold the images and labels, and what their values are."""

import json
from collections.abc import Iterable

import numpy as np

from vit_jax.config import Dataset
from vit_jax.data import byte_ranges
from vit_jax.data.jpeg import BadImage
from vit_jax.data.sources import table
from vit_jax.data.sources.base import ColumnError, SourceError
from vit_jax.process.text import shown
from vit_jax.storage.base import FileVersion
from vit_jax.storage.paths import Path, within

_IMAGES = ("img", "image_bytes", "bytes", "jpg", "png", "path", "image_path", "file_name")
_LABELS = ("labels", "class", "category", "target")
_BYTES = ("binary", "large_binary", "binary_view", "null")
_TEXTS = ("string", "large_string", "string_view")
_NAMES = (*_TEXTS, "bool")
_VIEWS = {"string_view": "large_string", "binary_view": "large_binary"}
# What encoded images begin with in base64: JPEG, PNG, GIF, WebP, BMP, TIFF; and URLs that hold any.
_BASE64 = ("/9j/", "iVBORw0KGgo", "R0lGOD", "UklGR", "Qk0", "SUkqA", "TU0AK", "data:image/")
_LONGEST = 256  # characters of a path that may begin so


def columns(where: str, schema, image_key: str, label_key: str) -> tuple[str, str]:
  """The columns of the images and of the labels; without a label_key, "" for the labels.

  Those that the settings name, or that have such a feature in the metadata of Hugging Face, or a
  usual name.

  Raises:
    ColumnError: there is none, or it holds no images.
  """
  features = _features(schema)
  images = [*_of_type(features, "Image"), *_IMAGES]
  classes = _of_type(features, "ClassLabel")
  labels = [*(classes if len(classes) == 1 else ()), *_LABELS]
  chosen = []
  for setting, key, usual in (("image_key", image_key, images), ("label_key", label_key, labels)):
    default, what = getattr(Dataset(), setting), f'"{where}", {setting}'
    name = key and table.column(key, default, usual, schema.names, what)
    if key and not name:
      raise ColumnError(f'"{where}" has the columns {shown(schema.names)}; name one by {setting}.')
    chosen.append(name)
  _check_images(where, chosen[0], schema.field(chosen[0]).type)
  return tuple(chosen)


def _features(schema) -> dict:
  """Hugging Face's description of each column; {} if there is none, or it is damaged."""
  try:
    return dict(json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"])
  except (KeyError, TypeError, ValueError, RecursionError):
    return {}


def _of_type(features: dict, kind: str) -> list[str]:
  """The columns of a type, in lower case; if there are none, those of lists of it."""
  is_it = lambda feature: isinstance(feature, dict) and feature.get("_type") == kind
  exact = [name.lower() for name in features if is_it(features[name])]
  return exact or [name.lower() for name in features if is_it(_kind(features[name]))]


def _kind(feature) -> dict:
  """The description of a column, or of the values in its lists."""
  feature = feature[0] if isinstance(feature, list) and feature else feature
  feature = feature.get("feature", feature) if isinstance(feature, dict) else {}
  return feature if isinstance(feature, dict) else {}


def _check_images(where: str, column: str, kind) -> None:
  fields = {field.name: field.type for field in kind} if str(kind).startswith("struct") else {}
  values = getattr(kind, "value_type", kind) if str(kind).startswith("dictionary") else kind
  fits = str(fields["bytes"]) in _BYTES if "bytes" in fields else str(values) in _BYTES + _TEXTS
  if not fits:
    raise ColumnError(
      f'Column {column!r} of "{where}" is {shown(str(kind))}, but must hold encoded images, paths, '
      "or {bytes, path}; name another by image_key."
    )


def check_paths(where: str, column: str, texts: Iterable[str | None]) -> None:
  """Checks that a column of texts holds no images in base64.

  Raises:
    ColumnError: it does.
  """
  if any(text and text.startswith(_BASE64) and len(text) > _LONGEST for text in texts):
    raise ColumnError(
      f'Column {column!r} of "{where}" holds images as base64 text, but must hold encoded images, '
      "paths, or {bytes, path}; write what base64.b64decode makes of it as a column of bytes."
    )


def notes(where: str, image: str, label: str, names: Iterable[str]) -> list[str]:
  """Which columns are read, if they are not called as the settings call them.

  And a column that names splits, which is not read: splits are those of files.
  """
  others = [name for name in names if name.lower() == table.SPLIT]
  unread = [f"All rows of {where!r} are taken: its column {name!r} is not read." for name in others]
  if (image, label or Dataset().label_key) == (Dataset().image_key, Dataset().label_key):
    return unread
  labelled = f", labels in {label!r}" if label else ""
  return [f"Columns of {where!r}: images are in {image!r}{labelled}.", *unread]


def split_column(schema) -> str:
  """The column of texts that is called "split"; "": there is none."""
  named = (name for name in schema.names if name.lower() == table.SPLIT)
  return next((name for name in named if is_text(schema.field(name).type)), "")


def is_text(kind) -> bool:
  """Whether a column of this type holds texts, be they in a dictionary."""
  return "string" in str(kind) and "struct" not in str(kind) and "list" not in str(kind)


def joined(chunks: Iterable):
  """All values of a column, of its parts."""
  import pyarrow as pa

  return _without_views(pa.chunked_array(chunks))


def _without_views(values):
  """The values in a type that every function of pyarrow takes."""
  import pyarrow as pa

  kind = values.type
  lists = pa.types.is_list(kind) or pa.types.is_large_list(kind)
  inner = str(kind.value_type if lists else kind)
  if inner not in _VIEWS:
    return values
  plain = pa.type_for_alias(_VIEWS[inner])
  return values.cast(pa.large_list(plain) if lists else plain)


def _is_list(kind) -> bool:
  """Whether a column of this type holds lists, be they of one length."""
  return str(kind).startswith(("list", "large_list", "fixed_size_list"))


def splits(values) -> list[str]:
  """The different splits in a column, sorted."""
  return sorted(filter(None, values.cast("string").unique().to_pylist()))


def of_split(where: str, column: str, values, split: str, notes: list[str]) -> np.ndarray:
  """The rows of a split, ascending; "" is all rows, which is noted.

  Raises:
    SourceError: there is no such split.
  """
  if not split:
    notes.append(table.all_splits(where, column, splits(values)))
    return np.arange(len(values))
  texts = values.cast("string").to_pylist()
  rows = np.array([row for row, text in enumerate(texts) if text == split], np.int64)
  if not len(rows):
    raise SourceError(
      f'"{where}" has no split {split!r}: its column {column!r} has {shown(splits(values))}.'
    )
  if without := sum(not text for text in texts):
    notes.append(table.without_split(without, where, column))
  return rows


def labels(where: str, schema, column: str, chunks: Iterable, rows: int) -> table.Labels:
  """The labels in a column: names or whole numbers, or lists of them.

  Args:
    where: the data, for messages.
    schema: of the table.
    column: its name; "": no labels.
    chunks: the arrays of its values.
    rows: the number of rows.

  Raises:
    SourceError: the values are of another kind, missing, or no class.
  """
  if not column:
    return table.Labels.none(rows)
  import pyarrow as pa
  from pyarrow import compute

  values, counts = joined(chunks), None
  if _is_list(values.type):
    counts = compute.fill_null(compute.list_value_length(values), 0).to_numpy()
    values = _without_views(compute.list_flatten(values))
  if values.null_count:
    first = compute.index(compute.is_null(values), True).as_py()
    raise SourceError(
      f'{values.null_count:,} labels in {column!r} of "{where}" are missing, the first is number '
      f'{first}; leave these rows out, or read without labels (label_key="").'
    )
  whole = pa.types.is_integer(values.type)
  if not whole and not pa.types.is_dictionary(values.type) and str(values.type) not in _NAMES:
    raise ColumnError(
      f'Column {column!r} of "{where}" is {shown(str(values.type))}, but labels are names or whole '
      "numbers, or lists of them; name another by label_key."
    )
  names = _kind(_features(schema).get(column)).get("names")
  with table.naming(where):
    if whole and isinstance(names, list) and all(isinstance(name, str) for name in names):
      return table.Labels.of_numbers(values.to_numpy(), names, counts)
    return table.Labels.of_names(map(str, values.to_pylist()), counts)


def image(value, folder: Path, name: str, stamp: FileVersion | None = None) -> bytes:
  """The encoded image of a value: bytes, a path from a folder, or {bytes, path}.

  Args:
    value: of a row.
    folder: that of the table.
    name: of the row, for messages.
    stamp: of the file, if the value is the path of one that is not on this machine.

  Raises:
    BadImage: there is none.
    ChangedError: the file has another stamp.
    SourceError: the file is not on this machine, and has no stamp.
    OSError: the file cannot be read.
  """
  data, path = value, None
  if isinstance(value, dict):
    data, path = value.get("bytes"), value.get("path")
  elif isinstance(value, str):
    data, path = None, value
  if data is None and not path:
    raise BadImage(f"{name} has no image.")
  if data is not None:
    return data
  path = within(folder, path)
  if byte_ranges.distant(path) and stamp is None:
    raise SourceError(
      f"{name} has no bytes, but the path {path} in a bucket; write the bytes of all images, or a "
      "column of paths alone."
    )
  return byte_ranges.image(path, stamp)
