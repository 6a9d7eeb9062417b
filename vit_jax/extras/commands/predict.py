"""Predicts the most probable classes of images.

vit-jax predict --source workdirs/vit_digits --images photo.png
vit-jax predict --source ViT-B_16.npz --images photos 'more/*.jpg' --top 3 --format csv

Exit status: 0 done; 1 some images could not be read, or the weights compute numbers that are not
finite (these images are named and skipped); 2 wrong usage, or weights that cannot be used.
"""

import pathlib
import sys

from vit_jax.config import Data, RunError
from vit_jax.config.tool_flags import ToolFlags, ending, folder, path, whole
from vit_jax.process import console
from vit_jax.process.progress import Line, Progress
from vit_jax.process.text import one_line

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
  add("--image-size", type=whole(0, 4096), default=0, help="pixels; default: the weights' own size")
  add("--batch-size", type=whole(1, 4096), default=32, help="images at a time (default: 32)")
  add("--max-pixels", type=whole(1, 2**40), default=Data().max_pixels, help=MAX_PIXELS)
  return result


def main(arguments: list[str] | None = None):
  """Predicts; see the exit status above."""
  command = flags()
  args = command.parse_args(arguments)
  form = args.format or "text"
  if args.output and not args.format:
    form = args.output.suffix[1:]
  if form not in FORMATS:
    command.error(f"--output {args.output} must end in .csv or .json, or give --format")
  with ending("predict"):
    if args.output:
      folder(args.output.parent, "--output")
    show(predicted(args), args.output, form)


def predicted(args) -> list:
  """The predictions of all images; leaves with status 2 if the images or weights are unusable."""
  line = Line(sys.stderr)
  try:
    with Progress(line) as progress:
      progress.doing("loading libraries")
      from vit_jax.inference.model import read_model
      from vit_jax.inference.predict import find_images, predict
      from vit_jax.weights import average

      paths = find_images(args.images)
      progress.doing(f"reading {args.source}")
      model = read_model(args.source, average=args.average)
      if not (args.image_size or model.card.image_size):
        raise ValueError(
          "The weights do not tell the size of their images; give it (--image-size)."
        )
      model = model.at_size(args.image_size)
      if model.card.average:
        line.say(one_line(f"Predicted with the {average.in_words(True)} of {args.source}:"))
      options = dict(top=args.top, batch_size=args.batch_size, max_pixels=args.max_pixels)
      count = progress.images("predict", len(paths), compiles=True)
      return list(predict(model, paths, done=count.done, **options))
  except (RunError, ValueError, OSError) as error:
    console.leave(str(error), console.WRONG_USAGE, "predict")


def show(done: list, output: pathlib.Path | None, form: str):
  """Writes or prints predictions; names the images that were skipped and leaves with status 1."""
  from vit_jax.inference.predict import NOT_FINITE, lines
  from vit_jax.storage import files

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
