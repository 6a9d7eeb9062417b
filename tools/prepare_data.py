"""Makes data sets that tfds:NAME reads: ArrayRecord files, which need no TensorFlow.

python tools/prepare_data.py images NAME --split train=folder:DIR --split val=csv:FILE
  From DIR/class/image files, or a CSV file with lines of path,label. Every image is decoded once:
  broken ones are left out; those whose suffix is wrong and those that are there twice are reported.
  The examples are put in a random order, so that train[:98%] is a random part.
python tools/prepare_data.py build NAME[/CONFIG][:VERSION]
  A data set of TensorFlow Datasets' own, which downloads it (pip install '.[prepare]').
python tools/prepare_data.py convert DIR/NAME/VERSION
  Adds ArrayRecord files to one that is there as TFRecord (pip install '.[prepare]').

A data set appears when it is complete. Stopped or killed, the same command goes on after the last
whole file of images or convert; build keeps what was downloaded.
Exit status: 0 done; 2 wrong usage; 1 an image or the disk fails.
"""

import json
import os

from tqdm import tqdm

from vit_jax.config import Data
from vit_jax.config.tool_ending import ending, folder
from vit_jax.config.tool_flags import ToolFlags, local, path, whole
from vit_jax.process import console

DATA_DIR = os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"


def flags() -> ToolFlags:
  """The command line."""
  result = ToolFlags("prepare_data", __doc__)
  kinds = result.add_commands("kind")
  images, build, convert = (kinds.add_parser(name) for name in ("images", "build", "convert"))
  add = images.add_argument
  add("name", help="of the data set: lower-case letters, digits, _")
  add("--split", action="append", required=True, metavar="SPLIT=folder:DIR|csv:FILE")
  add("--max-pixels", type=whole(1, 2**40), default=Data().max_pixels, help="of an image")
  add("--threads", type=whole(1, 1024), default=Data().threads, help="files made at a time")
  images.add_format("text", "json")
  build.add_argument("name", help="NAME[/CONFIG][:VERSION]")
  for one in (images, build):
    there = "default: TFDS_DATA_DIR, or TFDS's own"
    one.add_argument("--data-dir", type=local, default=DATA_DIR, help=there)
  convert.add_argument("directory", type=path, help="of the version to convert")
  return result


def images(args) -> str:
  """Makes a data set of images and tells about it."""
  from vit_jax.data.preparation import prepare, splits, summary

  opened = splits.open_splits(args.split)
  with tqdm(unit=" images", unit_scale=True) as bar:
    report = prepare.prepare(
      opened,
      args.data_dir,
      args.name,
      max_pixels=args.max_pixels,
      threads=args.threads,
      started=bar.reset,
      done=bar.update,
    )
  if args.format == "json":
    return json.dumps(report)
  return summary.in_words(report, args.data_dir, args.name)


def of_tfds(args) -> str:
  """Has TensorFlow Datasets build or convert one of its own.

  Raises:
    RuntimeError: what it needs for that is not installed.
  """
  from vit_jax.data.preparation import builders

  try:
    if args.kind == "build":
      return builders.build(args.name, args.data_dir)
    return builders.convert(args.directory)
  except ImportError as error:
    raise RuntimeError(f"{error}; it may be missing: pip install '.[prepare]'.") from error


def main(arguments: list[str] | None = None):
  """Prepares; one sentence and a status where that is not possible."""
  args = flags().parse_args(arguments)
  with ending("prepare_data"):
    if args.kind != "convert":
      folder(args.data_dir, "--data-dir")
    print(images(args) if args.kind == "images" else of_tfds(args))


if __name__ == "__main__":
  console.of_tool()
  main()
