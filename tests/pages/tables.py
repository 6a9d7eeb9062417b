"""Writes images in each format of docs/data.md into the folder it is started in."""

import csv
import io
import pathlib
import tarfile

import datasets
import pyarrow
from pyarrow import parquet

from tests.pages import photos


def main():
  """Writes them."""
  photos.main()
  paths = sorted(pathlib.Path("photos").rglob("*.png"))
  rows = [(path, path.parent.name) for path in paths]
  with open("photos/list.csv", "w", newline="") as file:
    writer = csv.writer(file)
    writer.writerows([("path", "label"), *((p.relative_to("photos"), name) for p, name in rows)])
  columns = {"image": [p.read_bytes() for p, _ in rows], "label": [name for _, name in rows]}
  parquet.write_table(pyarrow.table(columns), "photos.parquet", row_group_size=10)
  shards(rows)
  features = datasets.Features(
    {"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])}
  )
  data = {"image": [str(p) for p, _ in rows], "label": [name for _, name in rows]}
  datasets.Dataset.from_dict(data, features=features).save_to_disk("fashion_hf")


def shards(rows):
  """Four tar files in shards/."""
  pathlib.Path("shards").mkdir()
  for shard in range(4):
    with tarfile.open(f"shards/{shard:03}.tar", "w") as file:
      for number, (path, name) in enumerate(rows[shard::4]):
        add(file, f"{number}.png", path.read_bytes())
        add(file, f"{number}.cls", name.encode())


def add(file: tarfile.TarFile, name: str, content: bytes):
  """Adds a file to an archive."""
  entry = tarfile.TarInfo(name)
  entry.size = len(content)
  file.addfile(entry, io.BytesIO(content))


if __name__ == "__main__":
  main()
