"""Advice for files that the named source does not read, or that do not exist."""

import itertools
import os
import re

from vit_jax.config.suggestions import alike

MOST = 10_000  # most names in a folder to compare

TABLE = "write a CSV file with a line path,label for each image, and give csv:FILE."
_ADVICE = {
  re.compile(r"\.(tgz|zip|tar\.\w+)\b", re.IGNORECASE): (
    "Compressed archives are not read: unpack them, and name the folder or the .tar files."
  ),
  re.compile(r"\.tar\b", re.IGNORECASE): "Tar files of a WebDataset are named wds:PATTERN.",
  re.compile(r"\.parquet\b", re.IGNORECASE): "Parquet files are named parquet:PATH.",
  re.compile(r"\.[ct]sv\b", re.IGNORECASE): "A CSV file is named csv:FILE.",
}


def advice(text: str) -> str:
  """A sentence, after a space, on the kind of file that is named; "" without advice."""
  return next((f" {said}" for named, said in _ADVICE.items() if named.search(text)), "")


def near(path: str) -> str:
  """A question, after a space, that names files similar to a missing path; "" if there are none."""
  folder, name = os.path.split(os.path.abspath(os.path.expanduser(path)))
  try:
    with os.scandir(folder) as entries:
      names = [entry.name for entry in itertools.islice(entries, MOST)]
  except (OSError, ValueError):
    return ""
  found = [os.path.join(os.path.dirname(path), each) for each in alike(name, names, 0.6)[:3]]
  if not found:
    return ""
  return f" Did you mean {' or '.join(found)}?"
