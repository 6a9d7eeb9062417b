"""Finds the columns of images and labels in Arrow tables, and reads their values."""

import json
import os
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from vit_jax.config import Dataset
from vit_jax.data import byte_ranges
from vit_jax.data.jpeg import BadImage
from vit_jax.data.sources import several, table
from vit_jax.data.sources.base import Block, ColumnError, SourceError
from vit_jax.extras.sources import splits
from vit_jax.process.text import shown
from vit_jax.storage.base import FileVersion
from vit_jax.storage.paths import Path, within

_IMAGES = ("img", "image_bytes", "bytes", "jpg", "png", "path", "image_path", "file_name")
_BYTES = ("binary", "large_binary", "binary_view", "null")
_TEXTS = ("string", "large_string", "string_view")
_NAMES = (*_TEXTS, "bool")
_VIEWS = {"string_view": "large_string", "binary_view": "large_binary"}
# Beginnings of images in base64: JPEG, PNG, GIF, WebP, BMP, TIFF; and of data URLs.
_BASE64 = ("/9j/", "iVBORw0KGgo", "R0lGOD", "UklGR", "Qk0", "SUkqA", "TU0AK", "data:image/")
_LONGEST = 256  # characters; shorter text with such a beginning may be a path


def columns(
  where: str, schema, image_key: str, label_key: str, *, split: str, values: Callable
) -> tuple[str, str]:
  """The columns of the images and of the labels; without a label_key, "" for the labels.

  A setting may name a column. Otherwise it is found by its feature in the metadata of Hugging Face,
  or by a usual name.

  Args:
    where: the data, for messages.
    schema: the schema of the table.
    image_key, label_key: the settings.
    split: the column of splits, or "".
    values: values(column) are all values of a column, as a chunked array, which are read as needed.

  Raises:
    ColumnError: there is no such column, or it holds no images.
  """
  features = _features(schema)
  images = [*_of_type(features, "Image"), *_IMAGES]
  labels = [*table.LABELS]
  classes = _of_type(features, "ClassLabel")
  if len(classes) == 1:
    labels = [*classes, *table.LABELS]
  image = _column(where, schema.names, "image_key", image_key, images)
  others = [field for field in schema if field.name not in (image, split)]
  advice = lambda: _on_columns_of_bits(others, values)
  label = _column(where, schema.names, "label_key", label_key, labels, advice)
  _check_images(where, image, schema.field(image).type)
  return image, label


def in_identity(schema, image: str) -> str:
  """The column of the images if a setting must name it, for the data's identity; "" if it is found.

  The labels and the rows are the same whichever of several columns of images is chosen.
  """
  found = [Dataset().image_key, *_of_type(_features(schema), "Image"), *_IMAGES]
  usual = next((name for other in found for name in schema.names if name.lower() == other), "")
  return "" if image == usual else image


def _on_columns_of_bits(fields: list, values: Callable) -> str:
  """`several.in_columns` of the fields of a table; `values` is as for `columns`."""
  from pyarrow import types

  kinds = types.is_boolean, types.is_integer, types.is_floating
  if not all(any(is_kind(field.type) for is_kind in kinds) for field in fields):
    return ""
  return several.in_columns(
    [values(field.name).unique().to_pylist() for field in fields], "as a list"
  )


def _column(
  where: str,
  names: list[str],
  setting: str,
  key: str,
  usual: list[str],
  advice: Callable[[], str] = lambda: "",
) -> str:
  """The column for a setting with the value `key`; "" without a key.

  `advice` is what to do, if there is anything better than to name the column.
  """
  if not key:
    return ""
  default = getattr(Dataset(), setting)
  name = table.column(key, default, usual, names, f'"{where}", {setting}')
  if not name:
    what = advice() or f"name one by {setting}"
    raise ColumnError(f'"{where}" has the columns {shown(names)}; {what}.')
  return name


def _features(schema) -> dict:
  """Hugging Face's description of each column; {} if there is none, or it is damaged."""
  try:
    return dict(json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"])
  except (KeyError, TypeError, ValueError, RecursionError):
    return {}


def _of_type(features: dict, kind: str) -> list[str]:
  """The columns of a type, in lower case; if there are none, the columns with lists of it."""

  def has_kind(feature) -> bool:
    return isinstance(feature, dict) and feature.get("_type") == kind

  exact = [name.lower() for name in features if has_kind(features[name])]
  return exact or [name.lower() for name in features if has_kind(_kind(features[name]))]


def _kind(feature) -> dict:
  """The description of a column, or of the values in its lists."""
  if isinstance(feature, list) and feature:
    feature = feature[0]
  if isinstance(feature, dict):
    feature = feature.get("feature", feature)
  if isinstance(feature, dict):
    return feature
  return {}


def _may_hold_images(kind) -> bool:
  """Whether a column of this type may hold encoded images, paths, or {bytes, path}."""
  if str(kind).startswith("struct"):
    fields = {field.name: field.type for field in kind}
    return "bytes" in fields and str(fields["bytes"]) in _BYTES
  if str(kind).startswith("dictionary"):
    kind = kind.value_type
  return str(kind) in _BYTES + _TEXTS


def _check_images(where: str, column: str, kind) -> None:
  if not _may_hold_images(kind):
    raise ColumnError(
      f'Column {column!r} of "{where}" is {shown(str(kind))}, but must hold encoded images, paths, '
      "or {bytes, path}; name another by image_key."
    )


def check_paths(where: str, column: str, texts: Iterable[str | None]) -> None:
  """Checks that a text column holds no images in base64.

  Raises:
    ColumnError: it holds some.
  """
  if any(text and text.startswith(_BASE64) and len(text) > _LONGEST for text in texts):
    raise ColumnError(
      f'Column {column!r} of "{where}" holds images as base64 text, but must hold encoded images, '
      "paths, or {bytes, path}; write what base64.b64decode makes of it as a column of bytes."
    )


def notes(
  where: str, names: Iterable[str], read: tuple[str, str, str], few: dict[str, tuple[str, ...]]
) -> list[str]:
  """Notes on the columns that are read, unless they have the default names.

  Also notes columns that may name splits, if none of them is read.

  Args:
    where: the data.
    names: all columns.
    read: the columns of the images, of the labels and of the splits; "" for none of these.
    few: the result of `few_values`.
  """
  image, label, split = read
  said = []
  usual = image == Dataset().image_key and label in ("", Dataset().label_key)
  if not usual or split.lower() not in ("", splits.SPLIT):
    said.append(table.columns_read(where, *read))
  if not split:
    said += splits.on_unread(where, [name for name in names if name not in read], few)
  return said


def few_values(schema, pieces: Callable[[str], Iterable]) -> dict[str, tuple[str, ...]]:
  """`splits.few_values` of the columns of text.

  Args:
    schema: the schema of the table.
    pieces: pieces(column) are the values of a column, as chunked arrays, which are read as needed.
  """
  texts = [field.name for field in schema if is_text(field.type)]
  return splits.few_values({name: _texts(pieces(name)) for name in texts})


def _texts(pieces: Iterable) -> Iterator[str | None]:
  """The different texts of each piece; some may not be UTF-8."""
  for piece in filter(len, pieces):
    texts = joined(piece.chunks).cast("string").unique().cast("binary").to_pylist()
    yield from (text and text.decode(errors="replace") for text in texts)


def is_text(kind) -> bool:
  """Whether a column of this type holds text, plain or as a dictionary."""
  if str(kind).startswith("dictionary"):
    kind = kind.value_type
  return str(kind) in _TEXTS


def joined(chunks: Iterable):
  """All values of a column, from its chunks."""
  import pyarrow as pa

  return _without_views(pa.chunked_array(chunks))


def _without_views(values):
  """The values in a type that all functions of pyarrow accept."""
  import pyarrow as pa

  kind = values.type
  if pa.types.is_list(kind) or pa.types.is_large_list(kind):
    inner = str(kind.value_type)
    if inner in _VIEWS:
      return values.cast(pa.large_list(pa.type_for_alias(_VIEWS[inner])))
  elif str(kind) in _VIEWS:
    return values.cast(pa.type_for_alias(_VIEWS[str(kind)]))
  return values


def _is_list(kind) -> bool:
  """Whether a column of this type holds lists, of any or of fixed length."""
  return str(kind).startswith(("list", "large_list", "fixed_size_list"))


def labels(where: str, schema, column: str, chunks: Iterable, rows: int) -> table.Labels:
  """The labels in a column: names or whole numbers, or lists of them.

  Args:
    where: the data, for messages.
    schema: the schema of the table.
    column: the name of the column; "": no labels.
    chunks: the arrays of its values.
    rows: the number of rows.

  Raises:
    SourceError: values are missing, have another type, or are not classes.
  """
  if not column:
    return table.Labels.none(rows)
  import pyarrow as pa
  from pyarrow import compute

  values = joined(chunks)
  _check_none_missing(where, column, values)
  counts = None
  if _is_list(values.type):
    counts = compute.list_value_length(values).to_numpy()
    values = _without_views(compute.list_flatten(values))
    _check_none_missing(where, column, values)
  whole = pa.types.is_integer(values.type)
  if not whole and not pa.types.is_dictionary(values.type) and str(values.type) not in _NAMES:
    raise ColumnError(
      f'Column {column!r} of "{where}" is {shown(str(values.type))}, but labels are names or whole '
      "numbers, or lists of them; name another by label_key."
    )
  names = class_names(schema, column)
  with table.naming(where):
    if whole and names is not None:
      return table.Labels.of_numbers(values.to_numpy(), names, counts)
    return table.Labels.of_names(map(str, values.to_pylist()), counts)


def class_names(schema, column: str) -> list[str] | None:
  """Hugging Face's names of the numbers in a column of labels; None if there are none."""
  names = _kind(_features(schema).get(column)).get("names")
  if isinstance(names, list) and all(isinstance(name, str) for name in names):
    return names
  return None


def _check_none_missing(where: str, column: str, labels) -> None:
  """Raises SourceError if labels, or lists of them, are null; an empty list is no label."""
  from pyarrow import compute

  if labels.null_count:
    first = compute.index(compute.is_null(labels), True).as_py()
    raise SourceError(
      f'{labels.null_count:,} labels in {column!r} of "{where}" are missing, the first is number '
      f'{first}; leave these rows out, or read without labels (label_key="").'
    )


def may_be_paths(kind) -> bool:
  """Whether images of this type may be in files of their own, which `image` reads."""
  if str(kind).startswith("struct"):
    return any(field.name == "path" for field in kind)
  return is_text(kind)


def paths(pieces: Iterable) -> tuple[np.ndarray, np.ndarray]:
  """The images in files of their own, as `image` reads them.

  Args:
    pieces: (its first row, images as a chunked array) of each piece of a table, in order.

  Returns:
    The rows, (n,) int64 ascending, and the paths, (n,) bytes.
  """
  found = [pair for begin, values in pieces for pair in _paths(begin, values)]
  rows = np.array([row for row, _ in found], np.int64)
  return rows, np.array([path for _, path in found], bytes)


def _paths(begin: int, values) -> Iterator[tuple[int, bytes]]:
  """(row, path) of each image in a file of its own."""
  from pyarrow import compute

  rows = range(len(values))
  if str(values.type).startswith("struct"):
    without_bytes = compute.is_null(compute.struct_field(values, "bytes"))
    rows = np.flatnonzero(without_bytes.to_numpy())
    values = _without_views(compute.struct_field(values, "path")).take(rows)
  for row, text in zip(rows, values.to_pylist(), strict=True):
    if text:
      yield begin + int(row), os.fsencode(text)


def blocks(
  place: str,
  rows: np.ndarray,
  indices: np.ndarray,
  *,
  folder: Path,
  in_files: tuple[np.ndarray, np.ndarray],
) -> Iterator[Block]:
  """Where the images of a table are stored: in the table itself, or in the files that it names.

  Args:
    place: the table.
    rows: (n,) rows of the table, ascending.
    indices: (n,) the indices of these rows in the source.
    folder: the folder to which paths are relative.
    in_files: the result of `paths` for the table.
  """
  numbers, names = in_files
  named = np.isin(rows, numbers)
  yield Block(place, rows[~named], indices[~named])
  if named.any():
    yield from table.placed(folder, names[np.isin(numbers, rows)], indices[named])


def image(value, folder: Path, name: str, stamp: FileVersion | None = None) -> bytes:
  """The encoded image of a value: bytes, a path relative to a folder, or {bytes, path}.

  Args:
    value: the value of a row.
    folder: the folder of the table.
    name: the name of the row, for messages.
    stamp: the stamp of the file, if the value is the path of a file on another machine.

  Raises:
    BadImage: the value holds no image.
    ChangedError: the file has another stamp.
    SourceError: the file is not on this machine, and there is no stamp.
    OSError: the file cannot be read.
  """
  data = value
  path = None
  if isinstance(value, dict):
    data = value.get("bytes")
    path = value.get("path")
  elif isinstance(value, str):
    data = None
    path = value
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
