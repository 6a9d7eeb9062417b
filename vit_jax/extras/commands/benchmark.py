"""Measures speed on this machine: vit-jax benchmark WHAT.

step: images/s of the training step of ViT-S/16 on this CPU, compared with timm in torch, and MFU:
its FLOPs beside those of XLA's own matmul in float32 in the same time.
inference: images/s of predictions with ViT-S/16 and B/16, one image and 32 at a time, compared with
timm in torch.
data: images/s of the training input, from 500 x 375 JPEG files to 224 px, with threads
and from a cache, compared with tf.data.
augment: the same with the augmentation of each recipe, beside tf.data with the same operations.
formats: images/s of the training input on one core, from the same JPEG files in every format of
data: folder, CSV, Parquet, WebDataset, Hugging Face, TFDS.
buckets: images/s of the training input on one core, from a bucket whose answers are 0, 10 and 50 ms
late, beside the same files on a disk.
device: images/s and MFU of training steps in bfloat16 on a GPU, compared with timm and
torch.compile: ViT-S/16 to H/14, L/16 at 512 px, attention by XLA and cuDNN, scan, remat. On a CPU
it measures tiny models, and lists the others as not measured.
They need `pip install .[benchmark]`, but for formats (`.[hf]`) and buckets (`.[test]`), and take
minutes. Run nothing else at the same time.
"""

import importlib

from vit_jax.config.tool_flags import ToolFlags, ending
from vit_jax.process import text
from vit_jax.process.text import aligned, cells

# The module of extras/benchmarks for each WHAT.
MEASURES = {
  "step": "step",
  "inference": "inference",
  "data": "input",
  "augment": "augmentation",
  "formats": "formats",
  "buckets": "bucket",
  "device": "accelerator",
}
COLUMNS = {  # key of a row: (heading, format)
  "name": ("", ""),
  "batch": ("batch", "d"),
  "images_per_second": ("images/s", ".1f"),
  "ratio": ("ratio", ".2f"),
  "mfu": ("MFU", ".1%"),
  "cpu_microseconds": ("CPU us/image", "d"),
  "error": ("", ""),
}


def table(rows: list[dict]) -> str:
  """The rows as aligned text, with the columns that the rows have."""
  columns = {key: form for key, form in COLUMNS.items() if key in rows[0]}
  texts = [place for place, key in enumerate(columns) if key in ("name", "error")]
  return aligned(cells(rows, columns), left=texts)


def main(arguments: list[str] | None = None):
  """Measures and prints."""
  flags = ToolFlags("benchmark", __doc__)
  flags.add_argument("what", choices=MEASURES)
  flags.add_format("table", "json")
  args = flags.parse_args(arguments)
  with ending("benchmark"):
    rows = importlib.import_module(f"vit_jax.extras.benchmarks.{MEASURES[args.what]}").measure()
  if args.format == "json":
    print(text.json_text(rows))
  else:
    print(table(rows))
