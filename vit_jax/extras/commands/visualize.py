"""Shows what a model has learned: pictures, and the numbers behind them.

  vit-jax visualize filters --source ViT-B_16.npz --output pictures
  vit-jax visualize positions --source ViT-B_16.npz --image-size 384 --output pictures
  vit-jax visualize distance --source ViT-B_16.npz --images photos --output pictures
  vit-jax visualize attention --source ViT-B_16.npz --images '*.jpg' --output pictures
  vit-jax visualize heads --source ViT-B_16.npz --images '*.jpg' --output pictures
  vit-jax visualize patches --source dinov2-small --images '*.jpg' --output pictures
  vit-jax visualize features --source workdirs/mine --images digits --split test --output o
  vit-jax visualize mistakes --source workdirs/mine --output pictures
  vit-jax visualize augment --config configs/mine.py --images photos --output pictures

filters    principal components of the patch-embedding filters, and their share of the variance
positions  similarity of each patch's position embedding with all others
distance   mean attention distance of every head and layer, in pixels
attention  Attention Rollout over images, and the predicted classes; --raw for one head
heads      attention of the class token in the last layer, a map for each head
patches    the patches' features as colours: their first three principal components, which all
           images share
features   a map of images by their features, coloured by class, and the nearest neighbours
mistakes   the most confident mistakes of a run that --mode=evaluate has scored
augment    images after each operation of a recipe's config.data.augment, a row for each

docs/inspection.md shows examples. Each has its own flags: vit-jax visualize WHAT --help.

Exit status: 0 done; 2 wrong usage, or weights or images that cannot be used; 1 the pictures cannot
be written.
"""

import sys

from vit_jax import recipes
from vit_jax.config import ConfigError, Data, RunError
from vit_jax.config.tool_flags import ToolFlags, ending, folder, image_size, path, whole
from vit_jax.extras.commands.probe import check_images
from vit_jax.process import console, text
from vit_jax.process.progress import Line, Progress
from vit_jax.process.text import one_line
from vit_jax.storage import files
from vit_jax.storage.paths import path_of

COUNTS = {
  "distance": 128,
  "attention": 16,
  "heads": 4,
  "patches": 16,
  "features": 1000,
  "mistakes": 24,
  "augment": 8,
}
MAX_IMAGES = {
  "distance": 4096,
  "attention": 256,
  "heads": 32,
  "patches": 256,
  "features": 10**4,
  "mistakes": 256,
  "augment": 32,
}
WHAT = ("filters", "positions", *COUNTS)
SIZED = ("positions", "distance", "attention", "heads", "patches", "features")
OVER_IMAGES = ("attention", "heads", "patches")
ANY_MODEL = ("patches", "features")  # the others look into the model


def flags() -> ToolFlags:
  """The command line."""
  result = ToolFlags("visualize", __doc__)
  kinds = result.add_commands("what")
  commands = {what: kinds.add_parser(what) for what in WHAT}
  for what, command in commands.items():
    if what == "augment":
      recipe = dict(metavar="configs/NAME.py[:ARG]", help="the recipe")
      command.add_argument("--config", required=True, **recipe)
      command.add_settings()
    else:
      command.add_source(required=True)
    if what not in ("mistakes", "augment"):
      command.add_average()
    command.add_argument("--output", type=path, required=True, help="folder for the pictures")
    command.add_format("text", "json")
    if what in COUNTS:
      add_images(command, what)
    if what in SIZED:
      side = "of the images, such as 224 or 224x256; default: the weights' own size"
      command.add_argument("--image-size", type=image_size, default=0, help=side)
  head = "attention of one layer and head, both from 0, in place of the rollout"
  commands["attention"].add_argument(
    "--raw", nargs=2, type=whole(0, 10**4), metavar=("LAYER", "HEAD"), help=head
  )
  commands["features"].add_argument(
    "--method", choices=("tsne", "pca"), default="tsne", help="of the map (default: tsne)"
  )
  return result


def add_images(command: ToolFlags, what: str):
  """Adds the flags that say which images are shown."""
  default = ""
  if what == "mistakes":
    default = " (default: the sets of the run's settings)"
  command.add_argument(
    "--images",
    nargs="+",
    action="extend",
    required=what != "mistakes",
    help="files, directories, globs in quotes, or one source such as digits, folder:DIR or "
    f"tfds:NAME{default}",
  )
  command.add_argument("--split", default="", help="of a source, such as test")
  most = f"most images (default: {COUNTS[what]}); larger sets are sampled evenly"
  larger = "larger images are refused (default: %(default)s)"
  command.add_argument("--max-pixels", type=whole(1, 2**40), default=Data().max_pixels, help=larger)
  command.add_argument("--count", type=whole(1, MAX_IMAGES[what]), default=COUNTS[what], help=most)


def shown(args, settings: list[str]):
  """The pictures and numbers; leaves with status 2 if the weights or the images are unusable."""
  from vit_jax.config.resolve import check_known
  from vit_jax.extras.experiments.facts import OF_COST, decided
  from vit_jax.extras.inspection import augmentation, over_images, views
  from vit_jax.training.facts import LATER

  try:
    if args.what == "augment":
      asked = recipes.resolve(args.config, settings)
      config = decided(asked)
      check_known(config, LATER | OF_COST - {"data.image_size"})
      return augmentation.augmented(config.data, images_of(args, args.count))
    if args.what == "mistakes":
      check_with_images(args)
      images = None
      if args.images:
        images = images_of(args, 2**40)
      return views.mistakes(path_of(args.source), args.count, images)
    model = model_of(args)
    views_of = views
    if args.what in OVER_IMAGES:
      views_of = over_images
    look = getattr(views_of, args.what)
    if args.what not in COUNTS:
      return of_weights(look(model), model)
    images = images_of(args, args.count)
    with Progress(Line(sys.stderr)) as progress:
      count = progress.images(args.what, len(images), compiles=True)
      return of_weights(look(model, images, count.done, **own_options(args)), model)
  except (RunError, ValueError, OSError) as error:
    console.leave(str(error), console.WRONG_USAGE, "visualize")


def of_weights(shown, model):
  """The same pictures, with a note if the weights are a moving average."""
  from vit_jax.weights.card import parameters_in_words

  if not model.card.average:
    return shown
  sentence = f"With the {parameters_in_words(True)}: {shown.text}"
  return shown._replace(text=sentence, summary={**shown.summary, "average": True})


def check_with_images(args):
  """Refuses flags that count only with --images.

  Raises:
    ConfigError: they are given without it.
  """
  if not args.images and (args.split or args.max_pixels != Data().max_pixels):
    raise ConfigError(
      "--split and --max-pixels go with --images; without it the run's own settings count."
    )


def model_of(args):
  """The model, for images of the given size where the size matters."""
  from vit_jax.extras.inspection.attention import check_transparent
  from vit_jax.inference.model import read_model

  model = read_model(args.source, average=args.average)
  if args.what not in ANY_MODEL:
    check_transparent(model.module)
  if args.what not in SIZED:
    return model
  return model.at_size(args.image_size)


def images_of(args, count: int):
  """The images that the command line names, at most `count`."""
  from vit_jax.extras.inspection.gallery import gallery

  labelled = args.what == "features"
  return gallery(args.images, args.split, count, labelled=labelled, max_pixels=args.max_pixels)


def own_options(args) -> dict:
  """The flags that only this kind of picture has."""
  return {key: value for key, value in vars(args).items() if key in ("raw", "method")}


def main(arguments: list[str] | None = None):
  """Draws and writes; see the exit status above."""
  parser = flags()
  args, settings = parser.parse_with_settings(arguments)
  if settings and args.what != "augment":
    parser.error(f"{settings[0]!r} is a setting of a recipe, which only augment takes")
  with ending("visualize"):
    if args.what != "augment":
      files.check_weights(args.source)
    for word in getattr(args, "images", None) or ():
      check_images(word, "--images")
    folder(args.output, "--output")
    from vit_jax.extras.inspection.shown import write

    written = write(shown(args, settings), args.output)
  if args.format == "json":
    print(text.json_text(written))
    return
  print(written["text"])
  print(one_line(f"Written: {', '.join(written['pictures'][-3:] + written['numbers'])}"))
