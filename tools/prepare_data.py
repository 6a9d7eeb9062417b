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

import argparse
import json
import os
import pathlib
import sys

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1])]

from tqdm import tqdm

from tools.bounds import whole
from tools.ending import ending, folder
from vit_jax.config import ConfigError, Data
from vit_jax.data import sources
from vit_jax.data.preparation import listing, prepare
from vit_jax.process import console

DATA_DIR = os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"


def parser() -> argparse.ArgumentParser:
  """The command line."""
  result = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  kinds = result.add_subparsers(dest="kind", required=True)
  images, build, convert = (kinds.add_parser(name) for name in ("images", "build", "convert"))
  images.add_argument("name", help="of the data set: lower-case letters, digits, _")
  images.add_argument(
    "--split", action="append", required=True, metavar="SPLIT=folder:DIR|csv:FILE"
  )
  images.add_argument(
    "--max_pixels", type=whole(1, 2**40), default=Data().max_pixels, help="of an image"
  )
  images.add_argument(
    "--threads", type=whole(1, 1024), default=Data().threads, help="files made at a time"
  )
  images.add_argument("--format", choices=("text", "json"), default="text", help="of the report")
  build.add_argument("name", help="NAME[/CONFIG][:VERSION]")
  for one in (images, build):
    one.add_argument("--data_dir", default=DATA_DIR, help="default: TFDS_DATA_DIR, or TFDS's own")
  convert.add_argument("directory", type=pathlib.Path, help="of the version to convert")
  return result


def open_split(text: str) -> tuple[str, sources.Source]:
  """The split and its source that SPLIT=folder:DIR or SPLIT=csv:FILE names.

  Raises:
    SourceError: it does not, or the data is not there.
  """
  split, _, spec = text.partition("=")
  kind, _, path = spec.partition(":")
  if not split.isidentifier() or kind not in ("folder", "csv") or not path:
    raise sources.SourceError(f"--split {text!r} is not SPLIT=folder:DIR or SPLIT=csv:FILE.")
  if kind == "csv":
    return split, listing.Listing(path)
  return split, sources.open_source(spec, split="", num_classes=1)


def open_splits(texts: list[str]) -> dict[str, sources.Source]:
  """The sources of all splits.

  Raises:
    SourceError: as `open_split`, or a split is given twice.
  """
  opened = [open_split(text) for text in texts]
  names = [name for name, _ in opened]
  for name in names:
    if names.count(name) > 1:
      raise sources.SourceError(
        f"--split {name} is given {names.count(name)} times; put its images into one folder or "
        "table, or name the splits differently."
      )
  return dict(opened)


def images(args) -> str:
  """Makes a data set of images and tells about it."""
  splits = open_splits(args.split)
  with tqdm(unit=" images", unit_scale=True) as bar:
    report = prepare.prepare(
      splits,
      args.data_dir,
      args.name,
      max_pixels=args.max_pixels,
      threads=args.threads,
      started=bar.reset,
      done=bar.update,
    )
  return json.dumps(report) if args.format == "json" else in_words(report, args)


def in_words(report: dict, args) -> str:
  """The report for people."""
  lines = []
  for split, found in report["splits"].items():
    lines.append(
      f"{split}: {found['examples']:,} images; left out as broken: {found['broken']:,}; with the "
      f"wrong suffix: {found['misnamed']:,}"
    )
    for reason, count in found["not_images"].items():
      lines.append(f"  No images: {count:,} {reason}")
    lines += [f"  {name}" for names in found["names"].values() for name in names[:3]]
    if found["in_order_of_classes"]:
      lines.append("  One class came after another; the data set has them in a random order.")
  for splits, found in report["duplicates"].items():
    lines.append(f"In {splits} {found['images']:,} images are repeated.")
    lines += [f"  {again}: as {first}" for first, again in found["names"][:3]]
  folder = f"{args.data_dir}/{args.name}/{prepare.VERSION}"
  lines.append(f"Data set: {folder} (--config.data.train.source=tfds:{args.name})")
  lines.append(f"Report:   {folder}/{prepare.REPORT}")
  return "\n".join(lines)


def build(args) -> str:
  """Lets TensorFlow Datasets download and prepare one of its own.

  Raises:
    ConfigError: it knows no such data set, or it needs files that are to be downloaded by hand.
  """
  import tensorflow_datasets as tfds

  try:
    builder = tfds.builder(args.name, data_dir=args.data_dir, file_format="array_record")
  except tfds.core.DatasetNotFoundError as error:
    raise ConfigError(f"TensorFlow Datasets has no data set {args.name!r}.") from error
  try:
    builder.download_and_prepare()
  except AssertionError as error:  # so it asks for files that nobody may download but the user
    raise ConfigError(" ".join(str(error).split())) from error
  return f"Data set: {builder.data_path}"


def convert(args) -> str:
  """Lets TensorFlow Datasets add ArrayRecord files to a data set.

  Raises:
    ConfigError: there is no data set.
  """
  if not (args.directory / "dataset_info.json").is_file():
    raise ConfigError(f"{args.directory} holds no dataset_info.json; name the folder of a version.")
  from tensorflow_datasets.scripts.cli import convert_format_utils

  convert_format_utils.convert_dataset(
    out_file_format="array_record", dataset_version_dir=[str(args.directory)], out_dir=None
  )
  return f"Data set: {args.directory}"


def main():
  """Prepares; one sentence and a status where that is not possible."""
  args = parser().parse_args()
  with ending("prepare_data"):
    if args.kind != "convert":
      folder(args.data_dir, "--data_dir")
    try:
      print({"images": images, "build": build, "convert": convert}[args.kind](args))
    except ImportError as error:
      raise RuntimeError(f"{error}; it may be missing: pip install '.[prepare]'.") from error


if __name__ == "__main__":
  console.of_tool()
  main()
