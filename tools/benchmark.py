"""Measures speed on the machine at hand: python tools/benchmark.py step|data [--format=json].

step: images/s of the training step of ViT-S/16 on this CPU, against timm in torch.
data: images/s of the training input, 500 x 375 JPEG files to 224 px, by threads, by workers and
from a cache, against tf.data.
Both need `pip install .[benchmark]` and take minutes; nothing else should run meanwhile.
"""

import argparse
import json
import pathlib
import sys

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1])]

from tools import benchmark_data, benchmark_step
from vit_jax import memory

MEASURES = {"step": benchmark_step.measure, "data": benchmark_data.measure}


def table(rows: list[dict]) -> str:
  """The rows as aligned text."""
  width = max(len(row["name"]) for row in rows)
  cpu = "cpu_microseconds" in rows[0]
  lines = [f"{'':{width}}  images/s  ratio" + "  CPU us/image" * cpu]
  lines += [
    f"{row['name']:{width}}  {row['images_per_second']:8.1f}  {row['ratio']:5.2f}"
    + (f"  {row['cpu_microseconds']:12}" if cpu else "")
    for row in rows
  ]
  return "\n".join(lines)


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
  memory.ask_for_huge_pages()
  main()
