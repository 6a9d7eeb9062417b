"""Speed of the training input from each format of data, on one core.

The same JPEG files are written in every format, into a temporary folder. One thread on one core in
turn reads, crops, resizes, flips and batches them. CPU time per image hardly depends on what else
the machine does; images per second do.
"""

import functools
import io
import json
import os
import pathlib
import tarfile
import tempfile
from collections.abc import Callable, Iterator

from vit_jax.data import sources
from vit_jax.extras.benchmarks import input as jpegs
from vit_jax.extras.preparation import prepare
from vit_jax.process.errors import ConfigError

_ROWS = (10, 100)  # of a Parquet row group


def measure(
  *, rounds: int = 5, seconds: float = 2.0, batch_size: int = 64, files: int = 2000
) -> list[dict]:
  """Measures every format in turn, `rounds` times, and reports medians.

  Args:
    rounds: number of turns of each format.
    seconds: length of a turn without warm-up.
    batch_size: images in a batch.
    files: number of JPEGs to make.

  Returns:
    [{name, images_per_second, ratio, cpu_microseconds}]; ratio is the speed divided by that of the
    folder. A format whose library is not installed has an error instead.
  """
  with tempfile.TemporaryDirectory() as temporary:
    root = pathlib.Path(temporary)
    jpegs.write_jpegs(str(root / "jpegs"), count=files)
    made = {name: _opened(make, root) for name, make in FORMATS.items()}
    runs = {
      name: functools.partial(jpegs.our_batches, source, batch_size=batch_size, threads=1)
      for name, source in made.items()
      if not isinstance(source, Exception)
    }
    core = min(os.sched_getaffinity(0))
    turns = jpegs.turns(runs, rounds, cores={core}, seconds=seconds, batch_size=batch_size)
  return [_row(name, turns, made[name]) for name in FORMATS]


def _opened(make: Callable, root: pathlib.Path) -> sources.Source | Exception:
  """The source of a format, or why it cannot be made."""
  try:
    spec, *split = make(root, sources.open_source(f"folder:{root}/jpegs"))
    return sources.open_source(spec, split="".join(split))
  except (ImportError, ConfigError) as error:
    return error


def _row(name: str, turns: list[dict[str, jpegs.Speed]], source) -> dict:
  if isinstance(source, Exception):
    return dict(
      name=name, images_per_second=None, ratio=None, cpu_microseconds=None, error=str(source)
    )
  return jpegs.row(name, turns, beside="folder:") | {"error": ""}


def _examples(folder: sources.Source) -> Iterator[tuple[str, bytes, str]]:
  """(path, bytes, class) of each file."""
  for i in range(len(folder)):
    example = folder[i]
    yield example.name, example.image, folder.class_names[example.labels[0]]


def _folder(root, folder):
  del folder
  return (f"folder:{root}/jpegs",)


def _csv(root, folder):
  lines = (f"{path},{label}\n" for path, _, label in _examples(folder))
  (root / "list.csv").write_text("".join(lines))
  return (f"csv:{root}/list.csv",)


def _parquet(root, folder, *, rows):
  import pyarrow as pa
  from pyarrow import parquet

  _, images, labels = zip(*_examples(folder), strict=True)
  path = root / f"{rows}.parquet"
  parquet.write_table(pa.table({"image": images, "label": labels}), path, row_group_size=rows)
  return (f"parquet:{path}",)


def _wds(root, folder):
  with tarfile.open(root / "0.tar", "w") as tar:
    for number, (_, image, label) in enumerate(_examples(folder)):
      for kind, data in (("jpg", image), ("json", json.dumps({"label": label}).encode())):
        header = tarfile.TarInfo(f"{number}.{kind}")
        header.size = len(data)
        tar.addfile(header, io.BytesIO(data))
  return (f"wds:{root}/0.tar",)


def _hf(root, folder):
  import datasets

  datasets.disable_progress_bars()
  _, images, labels = zip(*_examples(folder), strict=True)
  columns = {"image": [{"bytes": image, "path": None} for image in images], "label": labels}
  datasets.Dataset.from_dict(columns).save_to_disk(root / "hf")
  return (f"hf:{root}/hf",)


def _tfds(root, folder):
  options = dict(max_pixels=10**8, threads=1)
  prepare.prepare({"train": folder}, str(root), "jpegs_of_benchmark", **options)
  os.environ["TFDS_DATA_DIR"] = str(root)
  return "tfds:jpegs_of_benchmark", "train"


FORMATS = {
  "folder:": _folder,
  "csv:": _csv,
  **{f"parquet:, {rows} rows in a group": functools.partial(_parquet, rows=rows) for rows in _ROWS},
  "wds:": _wds,
  "hf:": _hf,
  "tfds:": _tfds,
}
