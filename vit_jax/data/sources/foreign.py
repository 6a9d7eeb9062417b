"""What to do with files that the source which was named does not read, or that are not there."""

import itertools
import os
import re

from vit_jax.config.suggestions import alike

MOST = 10_000  # names in a folder that are compared

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
  """A sentence, with a space before it, on the kind of file that is named; "" if there is none."""
  return next((f" {said}" for named, said in _ADVICE.items() if named.search(text)), "")


def near(path: str) -> str:
  """A question, with a space before it, that names what lies beside a missing path; or ""."""
  folder, name = os.path.split(os.path.abspath(os.path.expanduser(path)))
  try:
    with os.scandir(folder) as entries:
      names = [entry.name for entry in itertools.islice(entries, MOST)]
  except (OSError, ValueError):
    return ""
  found = [os.path.join(os.path.dirname(path), each) for each in alike(name, names, 0.6)[:3]]
  return f" Did you mean {' or '.join(found)}?" if found else ""
