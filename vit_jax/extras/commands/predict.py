"""Predicts the most probable classes of images, or computes their features.

vit-jax predict --source workdirs/vit_digits --images photo.png
vit-jax predict --source ViT-B_16.npz --images photos 'more/*.jpg' --top 3 --format csv
vit-jax predict --source ViT-B_16.npz --images photos --features --output features.npz

--features writes what the head sees, one row for each image, as NumPy's *.npz or as *.parquet. With
--layers=4 it writes the class tokens of the last 4 blocks, and with --patches those of all patches.
The file also has source, layers and patches; without these flags also representation: "pre_logits"
for the input of the head, or "patches" for their mean.

Exit status: 0 done; 1 some images could not be read, or the weights compute numbers that are not
finite (these images are named and skipped); 2 wrong usage, or weights that cannot be used.
"""

import pathlib
import sys

from vit_jax.config import Data, RunError
from vit_jax.config.tool_flags import ToolFlags, ending, file, image_size, path, whole
from vit_jax.data.patterns import find_images
from vit_jax.process import console
from vit_jax.process.progress import Line, Progress
from vit_jax.process.text import one_line
from vit_jax.storage import files
from vit_jax.storage.paths import path_of

FORMATS = ("text", "csv", "json")
MAX_PIXELS = "larger images are not read (default: %(default)s)"


def flags() -> ToolFlags:
  """The command line."""
  result = ToolFlags("predict", __doc__)
  result.add_source(required=True)
  result.add_average()
  add = result.add_argument
  add(
    "--images",
    nargs="+",
    action="extend",
    required=True,
    help="files, directories (with all folders below them), or globs in quotes",
  )
  add("--top", type=whole(1, 10**6), default=5, help="classes for each image (default: 5)")
  add("--format", choices=FORMATS, help="default: that of --output's name, or text")
  add("--output", type=path, help="file, such as *.csv or *.json, instead of the console")
  add(
    "--image-size",
    type=image_size,
    default=0,
    help="224 or 224x256; default: the weights' own size",
  )
  add("--batch-size", type=whole(1, 4096), default=32, help="images at a time (default: 32)")
  add("--features", action="store_true", help="features to --output, in place of classes")
  add("--layers", type=whole(0, 1000), default=0, help="with --features: the last blocks, each")
  add("--patches", action="store_true", help="with --features: of each patch")
  add("--max-pixels", type=whole(1, 2**40), default=Data().max_pixels, help=MAX_PIXELS)
  return result


def main(arguments: list[str] | None = None):
  """Predicts; see the exit status above."""
  command = flags()
  args = command.parse_args(arguments)
  if args.features:
    check_features(command, args)
    with ending("predict"):
      file(args.output, "--output")
      write_features(args)
    return
  if args.layers or args.patches:
    command.error("--layers and --patches go with --features")
  form = args.format or "text"
  if args.output and not args.format:
    form = args.output.suffix[1:]
  if form not in FORMATS:
    command.error(f"--output {args.output} must end in .csv or .json, or give --format")
  with ending("predict"):
    if args.output:
      file(args.output, "--output")
    show(predicted(args), args.output, form)


def check_features(command: ToolFlags, args):
  """Refuses flags that contradict --features; leaves with status 2."""
  if args.format or args.output is None or args.output.suffix not in (".npz", ".parquet"):
    command.error("--features is written to --output=NAME.npz or --output=NAME.parquet")


def predicted(args) -> list:
  """The predictions of all images; leaves with status 2 if the images or weights are unusable."""
  line = Line(sys.stderr)
  try:
    with Progress(line) as progress:
      paths, model = opened(args, line, progress)
      from vit_jax.inference.predict import predict

      options = dict(top=args.top, batch_size=args.batch_size, max_pixels=args.max_pixels)
      count = progress.images("predict", len(paths), compiles=True)
      return list(predict(model, paths, done=count.done, **options))
  except (RunError, ValueError, OSError) as error:
    console.leave(str(error), console.WRONG_USAGE, "predict")


def opened(args, line: Line, progress: Progress) -> tuple[list, object]:
  """The images, and the model for their size.

  Raises:
    ValueError, OSError, RunError: they cannot be used.
  """
  files.check_weights(args.source)
  paths = find_images(args.images)
  progress.doing("loading libraries")
  from vit_jax.inference.model import read_model
  from vit_jax.training import early_stopping
  from vit_jax.weights.card import parameters_in_words

  progress.doing(f"reading {args.source}")
  model = read_model(args.source, average=args.average).at_size(args.image_size)
  if said := early_stopping.best_elsewhere(path_of(args.source)):
    line.say(one_line(said))
  if model.card.average:
    line.say(one_line(f"Predicted with the {parameters_in_words(True)} of {args.source}:"))
  return paths, model


def write_features(args):
  """Writes features; names images that were skipped, and leaves with status 1."""
  line = Line(sys.stderr)
  bad = []
  with Progress(line) as progress:
    try:
      paths, model = opened(args, line, progress)
      from vit_jax.extras.probes import feature_files
      from vit_jax.inference import layers, predict

      layers.check(model.module, args.layers)
    except (RunError, ValueError, OSError) as error:
      console.leave(str(error), console.WRONG_USAGE, "predict")
    count = progress.images("features", len(paths), compiles=True)
    which = dict(layers=args.layers, patches=args.patches)
    options = dict(batch_size=args.batch_size, max_pixels=args.max_pixels, done=count.done)
    found = predict.each_features(model, paths, **which, **options)
    shape = predict.feature_shape(model, **which)
    facts = {"source": args.source, **which}
    if not (args.layers or args.patches):
      facts["representation"] = model.card.representation
    written = feature_files.write(args.output, good(found, bad), shape, facts)
  print(one_line(f"Features of {written:,} images, {shape} each, written to {args.output}"))
  for name, reason in bad:
    print(f"predict: {one_line(f'{name} was skipped: {reason}')}", file=sys.stderr)
  if bad:
    words = f"{len(bad)} of {len(paths)} images could not be used."
    console.leave(words, console.FAILED, "predict")


def good(found, bad: list):
  """Yields the features that are there and finite; adds (name, reason) of the others to `bad`."""
  import numpy as np

  for name, features in found:
    if isinstance(features, str):
      bad.append((name, features))
    elif not np.isfinite(features).all():
      bad.append((name, "its features are not finite numbers; the weights are damaged."))
    else:
      yield name, features


def show(done: list, output: pathlib.Path | None, form: str):
  """Writes or prints predictions; names the images that were skipped and leaves with status 1."""
  from vit_jax.inference.predict import NOT_FINITE, lines

  text = files.as_written("".join(lines(done, form)))
  if output:
    files.write_text(output, text)
    print(one_line(f"{sum(not p.error for p in done)} predictions written to {output}"))
  else:
    print(text, end="")
  bad = [p for p in done if p.error]
  for p in bad:
    print(f"predict: {one_line(f'{p.name} was skipped: {p.error}')}", file=sys.stderr)
  diverged = sum(p.error == NOT_FINITE for p in bad)
  reasons = (
    (len(bad) - diverged, "could not be read"),
    (diverged, "have logits that are not finite numbers"),
  )
  words = [f"{count} of {len(done)} images {reason}" for count, reason in reasons if count]
  if words:
    console.leave(f"{', and '.join(words)}.", console.FAILED, "predict")
