"""Finds and reports broken, misnamed and repeated files, and data sorted by class."""

import collections
import dataclasses
import hashlib
import os
from collections.abc import Iterator, Sequence

import numpy as np

from vit_jax.data import images
from vit_jax.data.image_files import SUFFIXES
from vit_jax.data.sources import Example
from vit_jax.process.text import one_line

_SHOWN = 100  # names of each kind in the report
# The first bytes of each format; any other file that can be decoded is a TIFF.
_BEGINNINGS = {
  b"\xff\xd8": "JPEG",
  b"\x89PNG": "PNG",
  b"RIFF": "WEBP",
  b"GIF": "GIF",
  b"\0\0": "AVIF",
  b"BM": "BMP",
  b"P": "PPM",
}


@dataclasses.dataclass
class Checked:
  """The findings for the images of one output file. They are saved beside it, for the report.

  Attributes:
    examples, bytes: the number of examples written, and their size.
    broken: names of images that cannot be read or decoded, and why; they are left out.
    misnamed: names of images whose suffix does not match the format of their content.
    names, digests: (examples,) the names and hexadecimal digests of the images written.
    labels: the labels of all images, broken ones included, in the order of the file; () if they
      cannot be read.
  """

  examples: int = 0
  bytes: int = 0
  broken: list[str] = dataclasses.field(default_factory=list)
  misnamed: list[str] = dataclasses.field(default_factory=list)
  names: list[str] = dataclasses.field(default_factory=list)
  digests: list[str] = dataclasses.field(default_factory=list)
  labels: list[tuple[int, ...]] = dataclasses.field(default_factory=list)


def check(example: Example, checked: Checked, *, max_pixels: int) -> bool:
  """Adds the findings for an example to `checked`; returns False if it must be left out."""
  checked.labels.append(example.labels)
  try:
    images.as_stored(example.image, max_pixels=max_pixels)
  except images.BadImage as error:
    checked.broken.append(f"{example.name}: {error}")
    return False
  checked.examples += 1
  checked.names.append(example.name)
  checked.digests.append(hashlib.blake2b(example.image, digest_size=16).hexdigest())
  suffix = os.path.splitext(example.name)[1].lower()
  if suffix in SUFFIXES and SUFFIXES[suffix] != format_of(example.image):
    checked.misnamed.append(f"{example.name}: {format_of(example.image)}")
  return True


def add_unreadable(error: images.BadImage, checked: Checked):
  """Adds an example that its source cannot read, which is left out, to `checked`."""
  checked.labels.append(())
  checked.broken.append(str(error))


def format_of(data: bytes) -> str:
  """The format of an image that can be decoded, by its content."""
  beginnings = (name for first, name in _BEGINNINGS.items() if data.startswith(first))
  return next(beginnings, "TIFF")


def report(by_split: dict[str, list[Checked]], orders: dict[str, Sequence[int]]) -> dict:
  """Counts and names of images that the user should look at.

  Args:
    by_split: the findings for the files of each split.
    orders: for each split, the order that maps positions in its files to indices in its source.

  Returns:
    "splits": for each split, the numbers of examples, broken and misnamed images, whether the
    source is sorted by class, and names; "duplicates": for each pair of splits, the number of
    images with the content of an earlier image, and names of such pairs.
  """
  splits = {split: _split_report(files, orders[split]) for split, files in by_split.items()}
  return {"splits": splits, "duplicates": _duplicates(by_split)}


def _duplicates(by_split: dict[str, list[Checked]]) -> dict:
  """The images with the content of an earlier image, by pairs of splits."""
  first = {}  # digest: the split and the name of the first image with this content
  repeated = collections.defaultdict(lambda: {"images": 0, "names": []})
  for split, name, digest in _written(by_split):
    if digest not in first:
      first[digest] = (split, name)
      continue
    first_split, first_name = first[digest]
    pair = repeated[" and ".join(sorted({first_split, split}))]
    pair["images"] += 1
    if len(pair["names"]) < _SHOWN:
      pair["names"].append([first_name, name])
  return dict(repeated)


def _written(by_split: dict[str, list[Checked]]) -> Iterator[tuple[str, str, str]]:
  """(split, name, digest) of each image written."""
  for split, files in by_split.items():
    for file in files:
      for name, digest in zip(file.names, file.digests, strict=True):
        yield split, name, digest


def _split_report(files: list[Checked], order: Sequence[int]) -> dict:
  broken = [name for file in files for name in file.broken]
  misnamed = [name for file in files for name in file.misnamed]
  labels = [label for file in files for label in file.labels]
  return {
    "examples": sum(file.examples for file in files),
    "broken": len(broken),
    "misnamed": len(misnamed),
    "in_order_of_classes": in_order(labels, order),
    "names": {"broken": broken[:_SHOWN], "misnamed": misnamed[:_SHOWN]},
  }


def in_order(labels: list[Sequence[int]], order: Sequence[int]) -> bool:
  """Whether the labelled examples are sorted; labels[i] are the labels of example order[i]."""
  numbers = np.empty(len(labels), np.int64)
  for position, label in enumerate(labels):
    numbers[order[position]] = label[0] if label else -1
  numbers = numbers[numbers >= 0]
  return bool(len(set(numbers.tolist())) > 1 and np.all(np.diff(numbers) >= 0))


def in_words(report: dict) -> str:
  """The report as text; names are on one line."""
  lines = []
  for split, of_split in report["splits"].items():
    lines.append(
      f"{split}: {of_split['examples']:,} images; left out as broken: {of_split['broken']:,}; with "
      f"a wrong suffix: {of_split['misnamed']:,}"
    )
    lines += [f"  {note}" for note in of_split["notes"]]
    lines += [f"  {name}" for names in of_split["names"].values() for name in names[:3]]
    if of_split["in_order_of_classes"]:
      lines.append("  The images were sorted by class; the dataset has them in a random order.")
  for splits, pairs in report["duplicates"].items():
    lines.append(f"In {splits} {pairs['images']:,} images are repeated.")
    lines += [f"  {again}: as {first}" for first, again in pairs["names"][:3]]
  return "\n".join(map(one_line, lines))
