"""The images of a folder that are most similar to yours.

  vit-jax search ViT-B_16.npz photos query.jpg
  vit-jax search ViT-B_16.npz photos query.jpg other.jpg --count 20 --output similar.html
  vit-jax search ViT-B_16.npz tfds:cifar10 query.jpg --split train

Compares the features of the weights by their cosine. Prints the nearest images, and writes a page
that shows them. Images in DIR that cannot be read are named and left out. The features of the
folder are kept in --cache, as those of vit-jax probe are, so that the next search takes seconds.

Exit status: 0 done; 2 wrong usage, or weights or images that cannot be used; 1 a failure.
"""

import pathlib
import sys

from vit_jax.config import ConfigError, RunError
from vit_jax.config.tool_flags import ToolFlags, ending, file, folder, path, source, whole
from vit_jax.extras.commands.probe import add_of_features, check_images
from vit_jax.extras.probes.request import FOLDER
from vit_jax.process import console, text
from vit_jax.process.progress import Line, Progress
from vit_jax.process.text import one_line
from vit_jax.storage import files

PAGE = FOLDER / "search.html"


def flags() -> ToolFlags:
  """The command line."""
  result = ToolFlags("search", __doc__)
  add = result.add_argument
  add("weights", type=source, metavar="WEIGHTS", help="as for vit-jax predict --source")
  add("images", metavar="DIR", help="a folder with images, also in inner folders; or any source")
  add("queries", type=path, nargs="+", metavar="QUERY", help="image files")
  add("--split", default="", help="of a source, such as test")
  add("--count", type=whole(1, 1000), default=12, help="images for each query (default: 12)")
  add("--output", type=path, default=PAGE, help="the page (default: %(default)s)")
  add_of_features(result)
  result.add_format("text", "json")
  return result


def main(arguments: list[str] | None = None):
  """Searches; see the exit status above."""
  args = flags().parse_args(arguments)
  with ending("search"):
    files.check_weights(args.weights)
    check_images(args.images)
    check_files(args.queries)
    file(args.output, "--output")
    if not files.is_folder(args.cache):  # one that cannot be written to may have the features
      folder(args.cache, "--cache")
    found, page = searched(args)
    from vit_jax.extras.probes import search

    files.write_text(args.output, page)
  if args.format == "json":
    print(text.json_text(search.values(found)))
    return
  print(text.aligned([("query", "similarity", "image"), *search.lines(found)], left=(0, 2)))
  print(one_line(f"Written: {args.output}"))


def searched(args) -> tuple[list, str]:
  """What was found, and the page; leaves with status 2 if images or weights are unusable."""
  line = Line(sys.stderr)
  with Progress(line) as progress:
    progress.doing("loading libraries")
    from vit_jax.extras.probes import cache, search, whole_probe

    try:
      model = whole_probe.opened(args, progress, line.say)
      kept = cache.Cache(model, args.cache, args.batch_size, progress, line.say)
      found, source = search.find(kept, args.images, args.split, args.queries, args.count)
      return found, search.page(found, source, args.weights, args.images, args.split)
    except (RunError, ValueError, OSError) as error:
      console.leave(str(error), console.WRONG_USAGE, "search")


def check_files(queries: list[pathlib.Path]):
  """Checks that the queries are there, before slow imports.

  Raises:
    ConfigError: one is not.
  """
  for query in queries:
    if not query.is_file():
      raise ConfigError(f"{str(query)!r} is no file; give images as QUERY.")
