"""What is wrong with images: broken, misnamed, there twice, one class after another."""

import collections
import dataclasses
import hashlib
import os
from collections.abc import Sequence

import numpy as np

from vit_jax.data import images
from vit_jax.data.image_files import SUFFIXES
from vit_jax.data.sources import Example

_SHOWN = 100  # names of each kind in the report
# How files begin; what else can be decoded is a TIFF.
_BEGINNINGS = {b"\xff\xd8": "JPEG", b"\x89PNG": "PNG", b"RIFF": "WEBP", b"BM": "BMP", b"P": "PPM"}


@dataclasses.dataclass
class Checked:
  """What was found in one file's images; written beside it, as the report is made of all.

  Attributes:
    examples, bytes: that were written.
    broken: names of those that cannot be decoded, which are left out.
    misnamed: names whose suffix is of another format than their content.
    names, digests: (examples,) of those written, and of their contents as hexadecimal words.
    labels: of all, broken ones too, in the order of the file.
  """

  examples: int = 0
  bytes: int = 0
  broken: list[str] = dataclasses.field(default_factory=list)
  misnamed: list[str] = dataclasses.field(default_factory=list)
  names: list[str] = dataclasses.field(default_factory=list)
  digests: list[str] = dataclasses.field(default_factory=list)
  labels: list[tuple[int, ...]] = dataclasses.field(default_factory=list)


def check(example: Example, checked: Checked, *, max_pixels: int) -> bool:
  """Adds what is found to `checked`; False where the image is to be left out."""
  checked.labels.append(example.labels)
  try:
    images.decode(example.image, max_pixels=max_pixels)
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


def format_of(data: bytes) -> str:
  """The format of an image that can be decoded, by its content."""
  beginnings = (name for first, name in _BEGINNINGS.items() if data.startswith(first))
  return next(beginnings, "TIFF")


def report(by_split: dict[str, list[Checked]], orders: dict[str, Sequence[int]]) -> dict:
  """Counts and names of what is worth a look.

  Args:
    by_split: what was found in the files of each split.
    orders: of each split, position in its files to index in its source.

  Returns:
    "splits": for each the counts examples, broken and misnamed, whether the source has one class
    after another, and names; "duplicates": by the splits of the two, how many images have the
    content of an earlier one, and names of pairs.
  """
  first, repeated = {}, collections.defaultdict(lambda: {"images": 0, "names": []})
  for split, parts in by_split.items():
    for one in parts:
      for name, digest in zip(one.names, one.digests, strict=True):
        if digest not in first:
          first[digest] = split, name
          continue
        found = repeated[" and ".join(sorted({first[digest][0], split}))]
        found["images"] += 1
        if len(found["names"]) < _SHOWN:
          found["names"].append([first[digest][1], name])
  splits = {split: _split_report(parts, orders[split]) for split, parts in by_split.items()}
  return {"splits": splits, "duplicates": dict(repeated)}


def _split_report(parts: list[Checked], order: Sequence[int]) -> dict:
  broken = [name for one in parts for name in one.broken]
  misnamed = [name for one in parts for name in one.misnamed]
  return {
    "examples": sum(one.examples for one in parts),
    "broken": len(broken),
    "misnamed": len(misnamed),
    "in_order_of_classes": in_order([label for one in parts for label in one.labels], order),
    "names": {"broken": broken[:_SHOWN], "misnamed": misnamed[:_SHOWN]},
  }


def in_order(labels: list[Sequence[int]], order: Sequence[int]) -> bool:
  """Whether labels, the i-th of which is that of example order[i], are in order by example."""
  numbers = np.empty(len(labels), np.int64)
  for position, label in enumerate(labels):
    numbers[order[position]] = label[0] if label else -1
  return bool(len(set(numbers.tolist())) > 1 and np.all(np.diff(numbers) >= 0))
