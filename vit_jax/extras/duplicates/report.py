"""Writes the results of a search for copies: pairs, an exclusion list, and a page."""

import base64
import html
import json
import pathlib
from collections.abc import Sequence

import numpy as np
import simplejpeg

from vit_jax.data import images
from vit_jax.data.sources import Source
from vit_jax.data.sources.subset import write_exclusions
from vit_jax.evaluation.examples import to_look_at

EXCLUDE = "exclude.txt"
PAIRS = "pairs.jsonl"
PAGE = "pairs.html"

_SIDE = 128  # pixels of a thumbnail
_STYLE = "body{font:14px sans-serif} td{padding:4px;vertical-align:top;max-width:20em}"


def clear(directory: pathlib.Path, prefix: str) -> None:
  """Removes DIRECTORY/PREFIX-*.jsonl, which a stopped search left behind."""
  for shard in directory.glob(f"{prefix}-*.jsonl"):
    shard.unlink()


def gather(
  directory: pathlib.Path, prefix: str, train: Source, tests: Sequence[Source]
) -> list[dict]:
  """Joins DIRECTORY/PREFIX-*.jsonl to pairs.jsonl, removes these shards, and returns the pairs.

  Sorts the pairs by train index, then by likeness, the most alike first, and adds the names of
  their images: "train_name", "test_name".
  """
  shards = sorted(directory.glob(f"{prefix}-*.jsonl"))
  pairs = [json.loads(line) for shard in shards for line in shard.read_text().splitlines()]
  pairs.sort(key=lambda pair: (pair["train"], -pair["likeness"], pair["set"], pair["test"]))
  for pair in pairs:
    pair["train_name"] = train.name(pair["train"])
    pair["test_name"] = tests[pair["set"]].name(pair["test"])
  (directory / PAIRS).write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
  clear(directory, prefix)
  return pairs


def write(
  directory: pathlib.Path,
  pairs: list[dict],
  train: Source,
  tests: list[Source],
  *,
  shown: int,
  max_pixels: int,
) -> None:
  """Writes exclude.txt with the index and name of every training image of `pairs`, and pairs.html.

  Args:
    directory: the folder for both files.
    pairs: the pairs that `gather` returned.
    train, tests: the sources to which the numbers in the pairs refer.
    shown: largest number of pairs on the page; it shows the least alike, which are doubtful.
    max_pixels: larger images are refused.
  """
  remarks = {}
  for pair in pairs:
    words = f"{pair['train_name']} is a copy of {pair['test_name']} ({pair['likeness']})"
    remarks.setdefault(pair["train"], words)
  write_exclusions(str(directory / EXCLUDE), train, remarks, remarks=remarks)
  doubtful = sorted(pairs, key=lambda pair: pair["likeness"])[:shown]
  rows = "\n".join(_row(pair, train, tests[pair["set"]], max_pixels) for pair in doubtful)
  title = f"{len(doubtful)} of {len(pairs)} pairs, the least alike first"
  (directory / PAGE).write_text(
    f'<!DOCTYPE html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
    f"<style>{_STYLE}</style><h1>{title}</h1>\n<table>\n{rows}\n</table></html>\n",
    encoding="utf-8",
    errors="replace",
  )


def _row(pair: dict, train: Source, test: Source, max_pixels: int) -> str:
  cells = [f"<td>{pair['likeness']:.4f}</td>"]
  for source, index in ((train, pair["train"]), (test, pair["test"])):
    example = source[index]
    picture = base64.b64encode(_thumbnail(example.image, max_pixels)).decode()
    cells.append(f'<td><img alt="" src="data:image/jpeg;base64,{picture}"></td>')
    cells.append(f"<td>{index}: {html.escape(example.name)}</td>")
  return f"<tr>{''.join(cells)}</tr>"


def _thumbnail(image: bytes | np.ndarray, max_pixels: int) -> bytes:
  """A JPEG whose larger side has at most 128 pixels."""
  pixels = to_look_at(image, max_pixels=max_pixels)
  height, width = pixels.shape[:2]
  least = max(1, min(height, width) * _SIDE // max(height, width))
  small = images.shrink(pixels, side=least, max_pixels=max_pixels)[:_SIDE, :_SIDE]
  return simplejpeg.encode_jpeg(np.ascontiguousarray(small), quality=80)
