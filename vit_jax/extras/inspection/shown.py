"""The result of an inspection: pictures, the numbers behind them, and one line of text."""

import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from vit_jax.evaluation import examples
from vit_jax.extras.plots import charts
from vit_jax.storage import files


class InspectionResult(NamedTuple):
  """The result of an inspection.

  Attributes:
    text: one line that sums up the result.
    summary: the values in that line.
    pictures: (name of a file, *.png or *.svg; Matplotlib figure or array (H, W, 3) uint8) each. An
      iterator may draw each picture when it is written.
    numbers: contents by the names of files: arrays by name for *.npz, rows for *.csv.
  """

  text: str
  summary: Mapping[str, Any]
  pictures: Iterable[tuple[str, Any]]
  numbers: Mapping[str, Mapping[str, np.ndarray] | Sequence[Sequence]]


def write(shown: InspectionResult, folder: pathlib.Path) -> dict:
  """Writes pictures and numbers, and replaces those of an earlier call.

  Returns:
    {"text", "summary", "pictures", "numbers"}: the line, its values, and the paths as text.

  Raises:
    OSError: a file cannot be written.
  """
  numbers = [_write(folder / name, content) for name, content in shown.numbers.items()]
  pictures = [_write(folder / name, content) for name, content in shown.pictures]
  _remove_outdated(folder, set(map(pathlib.Path, pictures)), numbers)
  return dict(text=shown.text, summary=dict(shown.summary), pictures=pictures, numbers=numbers)


def _remove_outdated(folder: pathlib.Path, pictures: set[pathlib.Path], numbers: Sequence[str]):
  """Removes pictures of an earlier call that had more images; other files stay."""
  earlier = []
  for inner in {picture.parent for picture in pictures} - {folder}:
    earlier += [path for path in files.matching(inner, "*.png") if path.stem.isdecimal()]
  earlier += [pathlib.Path(number).with_suffix(".png") for number in numbers]
  for path in earlier:
    if path not in pictures:
      files.remove(path)


def _write(path: pathlib.Path, content) -> str:
  files.make_folder(path.parent)
  if path.suffix == ".csv":
    files.write_csv(path, content)
  elif path.suffix == ".npz":
    with files.atomic_write(path) as partial, open(partial, "wb") as stream:
      np.savez_compressed(stream, **content)
  elif isinstance(content, np.ndarray):
    files.write_bytes(path, examples.png(content))
  else:
    charts.save(content, path)
  return str(path)
