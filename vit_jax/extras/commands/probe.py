"""How well classifiers on the features of a frozen model do on your images.

  vit-jax probe ViT-B_16.npz photos
  vit-jax probe workdirs/mine photos --probes knn logistic --seeds 5

photos: a folder with a folder of images for each class, or any other source of images with labels;
,label_key=NAME and ,image_key=NAME behind it name columns of a table that are not found.
Training images that cannot be read are named and left out; test images must all be readable.
Parts such as train and val are used as they are; otherwise a random tenth of each class is scored.

knn              a vote of the 10, 20, 100 and 200 nearest training images
logistic         logistic regression with 45 strengths of the penalty
linear           the linear probe of DINOv2: SGD with 13 rates, on one block and on four
cross_attention  a learned query that attends to the patches
attentive        the attentive probe of V-JEPA 2: four blocks; wants a GPU or a TPU
few_shot         the paper's probe in closed form, with 1, 5, 10 and 25 images of each class
segmentation     BatchNorm and a 1 x 1 convolution on patches, for DIR/images and DIR/masks; alone

--corruptions scores the test images again after 14 corruptions of five severities each.

A held-out tenth of the training images chooses settings; test images choose nothing. Features are
computed once, and kept in --cache. The table is printed, and written to --output as probe.json and
probe.html. docs/evaluation.md shows an example.

Exit status: 0 done; 2 wrong usage, or weights or images that cannot be used; 1 a failure.
"""

import dataclasses
import hashlib
import os
import pathlib
import sys

from vit_jax.config import ConfigError, RunError
from vit_jax.config.tool_flags import ToolFlags, ending, folder, image_size, path, source, whole
from vit_jax.extras.probes.request import (
  CACHE,
  FOLDER,
  KINDS,
  SEGMENTATION,
  SEGMENTATION_STEPS,
  STEPS,
  USUAL,
  Request,
)
from vit_jax.process import console, text
from vit_jax.process.progress import Line, Progress
from vit_jax.process.text import one_line
from vit_jax.recipes.loading import keys_of
from vit_jax.registry import SOURCES
from vit_jax.storage import files

STEPS_HELP = f"default: {STEPS:,} of linear, {SEGMENTATION_STEPS:,} of segmentation"
OVERLAP_HELP = "score test images even if the weights were trained on them, as without labels"


def flags() -> ToolFlags:
  """The command line."""
  result = ToolFlags("probe", __doc__)
  add = result.add_argument
  add("weights", type=source, metavar="WEIGHTS", help="as for vit-jax predict --source")
  add("images", metavar="DIR", help="the images; see above")
  add(
    "--probes",
    nargs="+",
    choices=(*KINDS, SEGMENTATION),
    default=USUAL,
    metavar="PROBE",
    help=f"some of {', '.join(KINDS)}, or {SEGMENTATION} (default: {', '.join(USUAL)})",
  )
  add("--seeds", type=whole(1, 1000), default=3, help="seeds 0, 1, ... (default: 3)")
  add("--steps", type=whole(1, 10**9), default=0, help=STEPS_HELP)
  add("--corruptions", action="store_true", help="score corrupted test images, as of ImageNet-C")
  add("--allow-overlap", action="store_true", help=OVERLAP_HELP)
  add("--output", type=path, help="folder for the results (default: probes/WEIGHTS-DIR)")
  add_of_features(result)
  result.add_format("text", "json")
  return result


def add_of_features(command: ToolFlags):
  """Adds the flags that say how features are computed and kept."""
  add = command.add_argument
  add("--cache", type=path, default=CACHE, help="folder for features (default: %(default)s)")
  add(
    "--image-size",
    type=image_size,
    default=0,
    help="224 or 224x256; default: the weights' own size",
  )
  add("--batch-size", type=whole(1, 4096), default=32, help="images at a time (default: 32)")
  command.add_plugins()
  command.add_average()


def check_images(word: str, flag: str = "DIR"):
  """Refuses a path that is not there, before slow imports.

  Args:
    word: a path, or perhaps a source or a pattern.
    flag: what gave it.

  Raises:
    ConfigError: it is neither a path, nor perhaps a source or a pattern.
  """
  word, _ = keys_of(word)
  plain = word not in SOURCES and not {*":*?[{"} & {*word}
  if plain and not os.path.exists(os.path.expanduser(word)):
    raise ConfigError(f"{flag}: {word!r} does not exist; give images, or a source of them.")


def default_folder(weights: str, images: str) -> pathlib.Path:
  """probes/WEIGHTS-DIR, of the last parts of both names.

  Where that is not the whole of both names, as of paths with a slash, it gets a sum of them behind
  it.
  """
  whole = [word.rstrip("/") or "/" for word in (weights, images)]
  parts = [pathlib.PurePath(word).name or "root" for word in whole]
  name = "".join(c if c.isalnum() or c in "-_." else "_" for c in "-".join(parts))[:100]
  if name != "-".join(whole):
    sum_ = hashlib.sha256(os.fsencode("\n".join(whole))).hexdigest()
    name = f"{name}-{sum_[:10]}"
  return FOLDER / name


def main(arguments: list[str] | None = None):
  """Probes; see the exit status above."""
  args = flags().parse_args(arguments)
  with ending("probe"):
    files.check_weights(args.weights)
    check_images(args.images)
    output = folder(args.output or default_folder(args.weights, args.images), "--output")
    if not files.is_folder(args.cache):  # one that cannot be written to may have the features
      folder(args.cache, "--cache")
    result = probed(args)
    from vit_jax.extras.probes import results

    # Before anything is written: a disk may have filled meanwhile.
    in_json = args.format == "json"
    print(text.json_text(results.values(result)) if in_json else results.in_words(result))
    written = results.write(result, output)
    if not in_json:
      print(one_line(f"Written: {', '.join(map(str, written))}"))


def probed(args):
  """The result; leaves with status 2 if the images or weights are unusable."""
  line = Line(sys.stderr)
  with Progress(line) as progress:
    progress.doing("loading libraries")
    from vit_jax.extras.probes import whole_probe, whole_segmentation

    run = whole_probe.run
    if SEGMENTATION in args.probes:
      run = whole_segmentation.run
    try:
      return run(asked(args), progress, line.say)
    except (RunError, ValueError, OSError) as error:
      console.leave(str(error), console.WRONG_USAGE, "probe")


def asked(args) -> Request:
  """The flags of the command line."""
  names = [field.name for field in dataclasses.fields(Request)]
  values = {name: getattr(args, name) for name in names}
  return Request(**values | {"probes": tuple(args.probes)})
