"""Measures speed here: python tools/benchmark.py step|data|device [--format=json].

step: images/s of the training step of ViT-S/16 on this CPU, against timm in torch.
data: images/s of the training input, 500 x 375 JPEG files to 224 px, by threads, by workers and
from a cache, against tf.data.
device: images/s and MFU of training steps in bfloat16 on a GPU, ViT-S/16 to H/14, L/16 at 512 px,
attention by XLA and cuDNN, scan, remat, against timm with torch.compile; on a CPU tiny models, and
these as not measured.
All need `pip install .[benchmark]` and take minutes; nothing else should run meanwhile.
"""

import argparse
import json
import pathlib
import sys

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1])]

from tools import benchmark_data, benchmark_device, benchmark_step
from vit_jax.process import console, huge_pages

MEASURES = {
  "step": benchmark_step.measure,
  "data": benchmark_data.measure,
  "device": benchmark_device.measure,
}
COLUMNS = {  # field of a row: title and format
  "batch": ("batch", "d"),
  "images_per_second": ("images/s", ".1f"),
  "ratio": ("ratio", ".2f"),
  "mfu": ("MFU", ".1%"),
  "cpu_microseconds": ("CPU us/image", "d"),
}


def table(rows: list[dict]) -> str:
  """The rows as aligned text; only the columns that there are."""
  fields = [field for field in COLUMNS if field in rows[0]]
  cells = [["", *(COLUMNS[field][0] for field in fields)]]
  for row in rows:
    figures = (
      "-" if row[field] is None else format(row[field], COLUMNS[field][1]) for field in fields
    )
    cells.append([row["name"], *figures, *filter(None, [row.get("error")])])
  widths = [max(len(row[i]) for row in cells) for i in range(len(fields) + 1)]
  return "\n".join(
    "  ".join(
      [row[0].ljust(widths[0])]
      + [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=False)]
      + row[len(widths) :]
    )
    for row in cells
  )


def main():
  """Measures and prints."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("what", choices=sorted(MEASURES))
  parser.add_argument("--format", choices=["table", "json"], default="table")
  args = parser.parse_args()
  rows = MEASURES[args.what]()
  print(json.dumps(rows, indent=2) if args.format == "json" else table(rows))


if __name__ == "__main__":
  huge_pages.ask_for_huge_pages()
  console.of_tool()
  main()
