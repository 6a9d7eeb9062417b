"""Makes datasets for tfds:NAME: ArrayRecord files, which are read without TensorFlow.

vit-jax prepare images NAME --split train=folder:DIR --split val=csv:FILE
  Takes DIR/class/image files, or a CSV file with lines of path,label. It decodes every image once,
  leaves broken images out, and reports images with a wrong suffix and images that occur twice.
  It writes the examples in a random order, so that train[:98%] is a random part.
  SOURCE is as for config.data.train.source; for tfds:OTHER, the split of the same name is copied.
  SOURCE,label_key=NAME and SOURCE,image_key=NAME name columns of a table that are not found.
  --classes NAME NAME ... keeps only the images of these classes.
vit-jax prepare build NAME[/CONFIG][:VERSION]
  Lets TensorFlow Datasets download and build one of its datasets (pip install '.[prepare]').
vit-jax prepare convert DIR/NAME/VERSION
  Adds ArrayRecord files to a dataset in TFRecord files (pip install '.[prepare]').

A dataset appears only when it is complete. If the command was stopped or killed, start it again:
images and convert continue after the last complete file, and build keeps its downloads.
Exit status: 0 done; 2 wrong usage; 1 an image cannot be read or the disk fails.
"""

import json
import os
import sys

from vit_jax.config import Data
from vit_jax.config.tool_flags import ToolFlags, ending, folder, path, whole
from vit_jax.process.progress import Line, Progress
from vit_jax.process.text import one_line

DATA_DIR = os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"


def flags() -> ToolFlags:
  """The command line."""
  result = ToolFlags("prepare", __doc__)
  kinds = result.add_commands("kind")
  images, build, convert = (kinds.add_parser(name) for name in ("images", "build", "convert"))
  add = images.add_argument
  add("name", help="name of the dataset: lower-case letters, digits, _")
  add("--split", action="append", required=True, metavar="SPLIT=SOURCE")
  add("--classes", nargs="+", default=(), metavar="NAME", help="classes to keep (default: all)")
  add(
    "--max-pixels", type=whole(1, 2**40), default=Data().max_pixels, help="most pixels of an image"
  )
  add("--threads", type=whole(1, 1024), default=Data().threads, help="files written at a time")
  images.add_format("text", "json")
  build.add_argument("name", help="NAME[/CONFIG][:VERSION]")
  for one in (images, build):
    there = "default: TFDS_DATA_DIR, or TFDS's own"
    one.add_argument("--data-dir", type=path, default=DATA_DIR, help=there)
  convert.add_argument("directory", type=path, help="folder of the version to convert")
  return result


def images(args) -> str:
  """Makes a dataset of images; returns a report."""
  from vit_jax.extras.preparation import prepare, quality, splits

  opened = splits.open_splits(args.split, args.classes)
  with Progress(Line(sys.stderr)) as progress:
    count = progress.images("prepare")
    report = prepare.prepare(
      opened,
      args.data_dir,
      args.name,
      max_pixels=args.max_pixels,
      threads=args.threads,
      started=count.begin,
      done=count.done,
    )
  if args.format == "json":
    return json.dumps(report)
  folder = f"{args.data_dir}/{args.name}/{prepare.VERSION}"
  places = (
    f"Dataset: {folder} (--config.data.train.source=tfds:{args.name})",
    f"Report:  {folder}/{prepare.REPORT}",
  )
  return "\n".join([quality.in_words(report), *map(one_line, places)])


def of_tfds(args) -> str:
  """Lets TensorFlow Datasets build or convert a dataset; returns a report.

  Raises:
    RuntimeError: a package that this needs is not installed.
  """
  from vit_jax.extras.preparation import builders

  try:
    if args.kind == "build":
      return builders.build(args.name, str(args.data_dir))
    return builders.convert(args.directory)
  except ImportError as error:
    raise RuntimeError(f"{error}; it may be missing: pip install '.[prepare]'.") from error


def main(arguments: list[str] | None = None):
  """Prepares a dataset; see the exit status above."""
  args = flags().parse_args(arguments)
  with ending("prepare"):
    if args.kind != "convert":
      folder(args.data_dir, "--data-dir")
    if args.kind == "images":
      print(images(args))
    else:
      print(one_line(of_tfds(args)))
