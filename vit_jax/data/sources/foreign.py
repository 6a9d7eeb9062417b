"""What to do with files that the source which was named does not read."""

import re

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
