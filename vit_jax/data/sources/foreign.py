"""What to do with files that the source which was named does not read."""

import re

TABLE = "write a CSV file with a line path,label for each image, and give csv:FILE."
_ADVICE = {
  re.compile(r"\.(tar|tgz|zip)\b", re.IGNORECASE): (
    f"Archives (WebDataset) are not read: unpack them, {TABLE}"
  ),
  re.compile(r"\.[ct]sv\b", re.IGNORECASE): "A CSV file is named csv:FILE.",
}


def advice(text: str) -> str:
  """A sentence, with a space before it, on the kind of file that is named; "" if there is none."""
  return next((f" {said}" for named, said in _ADVICE.items() if named.search(text)), "")
