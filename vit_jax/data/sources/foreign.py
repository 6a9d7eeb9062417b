"""What to do with files that no source reads."""

import re

_PREPARE = "python tools/prepare_data.py images NAME --split train=csv:FILE"
DATASET = f"make a dataset by `{_PREPARE}`, and give tfds:NAME."
_ADVICE = {
  re.compile(r"\.(tar|tgz|zip)\b", re.IGNORECASE): (
    "Archives (WebDataset) are not read: unpack them, write a CSV file with a line path,label for "
    f"each image, {DATASET}"
  ),
  re.compile(r"^csv:|\.[ct]sv\b", re.IGNORECASE): f"Of a CSV file, {DATASET}",
}


def advice(text: str) -> str:
  """A sentence, with a space before it, on the kind of file that is named; "" if there is none."""
  return next((f" {said}" for named, said in _ADVICE.items() if named.search(text)), "")
