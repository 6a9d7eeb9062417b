"""Finds training images that are copies of test images, and lists them for the run to leave out.

vit-jax dedup --train tfds:NAME train --test tfds:OTHER test --test folder:DIR --output DIR
python -m vit_jax.main --config=... --config.data.train.exclude=DIR/exclude.txt

A copy may have been encoded again, resized, or cut by up to 5% at each edge. Images below 32 pixels
a side must have equal pixels. The tool is made for photographs: it takes different drawings of few
strokes, such as enlarged digits, for copies (look at DIR/pairs.html). It misses copies of nearly
flat images; docs/duplicates.md tells how often.

It writes DIR/exclude.txt, the index and the name of each image to leave out; DIR/pairs.jsonl, every
pair by index and name; and DIR/pairs.html, which shows the pairs. The list is valid only for the
source and the split that --train names.

The time is linear in the number of training images: about 1.7 ms of one core for a JPEG of 500 x
375 pixels (2,000, 4,000 and 8,000 of them against 1,000 test images took 9, 11 and 18 s). Each test
image costs 25 hashes, and 4 KB of memory in every worker.

The tool runs on Apache Beam (pip install '.[dedup]'), by default in this process. It passes other
flags to Beam: --direct_running_mode=multi_processing --direct_num_workers=0 uses every core;
--runner=... chooses a runner, whose workers must see the data and DIR and need this package.
"""

import dataclasses
import json

from vit_jax.config import ConfigError, Data, Dataset
from vit_jax.config.tool_flags import ToolFlags, ending, path, whole
from vit_jax.process.text import one_line, quoted


def flags() -> ToolFlags:
  """The command line; unknown flags are passed to Beam."""
  result = ToolFlags("dedup", __doc__)
  add = result.add_argument
  source = dict(nargs="+", metavar=("SOURCE", "SPLIT"), required=True)
  add("--train", **source, help="where to look for copies: tfds:NAME SPLIT, folder:DIR, ...")
  add(
    "--test", **source, action="append", help="test images to look for; may be given several times"
  )
  add("--output", type=path, required=True, help="folder for the results")
  add(
    "--image-key",
    default=Dataset().image_key,
    help="TFDS feature that holds the image, in all sources",
  )
  add(
    "--label-key", default=Dataset().label_key, help="TFDS feature that holds the label; '': none"
  )
  pixels = whole(1, 2**40)
  add("--max-pixels", type=pixels, default=Data().max_pixels, help="larger images are left out")
  shown = "most pairs on the page, the least alike first"
  add("--shown", type=whole(0, 10**6), default=200, help=shown)
  result.add_format("text", "json")
  return result


def dataset(words: list[str], args) -> Dataset:
  """A source and its split as the command line gives them.

  Raises:
    ConfigError: more than a source and a split is given.
  """
  if len(words) > 2:
    raise ConfigError(f"{' '.join(words)!r} is more than a source and a split.")
  from vit_jax.data import sources

  split = words[1] if len(words) == 2 else ""
  return Dataset(sources.meant(words[0]), split, image_key=args.image_key, label_key=args.label_key)


def search(args, options: list[str]) -> dict:
  """Searches, writes the results, and returns the summary; raises as `find.search`."""
  from vit_jax.data.sources import label_key_of
  from vit_jax.extras.duplicates import find

  tests = [dataset(words, args) for words in args.test]
  tests = [
    dataclasses.replace(test, label_key=label_key_of(test.source, test.split, test.label_key))
    for test in tests
  ]
  sizes = dict(max_pixels=args.max_pixels, shown=args.shown)
  return find.search(dataset(args.train, args), tests, args.output, **sizes, options=options)


def main(arguments: list[str] | None = None):
  """Searches; ends with one sentence and exit status 2 after wrong usage, 1 after a failure."""
  args, options = flags().parse_known_args(arguments)
  with ending("dedup"):
    summary = search(args, options)
  if args.format == "json":
    print(json.dumps(summary))
    return
  flag = quoted(f"--config.data.train.exclude={summary['exclude']}")
  lines = (
    f"{summary['excluded']:,} of {summary['train_images']:,} training images are copies of "
    f"{summary['test_images']:,} test images; {summary['broken_images']:,} are broken.",
    f"List:  {summary['exclude']} ({flag})",
    f"Page:  {summary['page']}",
  )
  print(*map(one_line, lines), sep="\n")
