"""Makes the pictures of the pages anew: python -m tests.pages.pictures [digits fashion studies].

`digits` trains the demo, in minutes, and photographs its report with Chromium. `fashion` trains
configs/vit_fashion.py:plain, in ten minutes or more, and looks inside. `studies` draws what is in
docs/images/studies/*.csv. Commit first: the report shows the revision of the code.
"""

import pathlib
import shutil
import subprocess
import sys

from PIL import Image

from vit_jax.extras.experiments.studies import figure, loading, report, results

ROOT = pathlib.Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"
RUNS = ROOT / "workdirs" / "pictures"
WIDTH, HEIGHT = 1280, 790  # of the first screen of a report, pixels
WIDE = 1000  # pixels, the width of its picture
LIGHT = "--blink-settings=preferredColorScheme=1"
CHROMIUM = ["chromium", "--headless", "--no-sandbox", "--hide-scrollbars", LIGHT]


def main():
  """Makes those that are named, or all."""
  for name in sys.argv[1:] or KINDS:
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


def inside(kind: str, source: pathlib.Path, picture: pathlib.Path, *more: str):
  """One picture of what a model has learned."""
  output = source / "inside"
  python("tools/visualize.py", kind, f"--source={source}", f"--output={output}", *more)
  (made,) = (path for path in output.glob(f"{kind}*.png"))  # mistakes name their evaluation
  shutil.copy(made, picture)


def digits():
  """The curves, the confusion matrix and the report of the demo, and two looks inside."""
  folder = trained("vit_digits")
  shutil.copy(folder / "curves.png", IMAGES / "digits_curves.png")
  shutil.copy(folder / "evaluation/1/test/confusion.png", IMAGES / "digits_confusion.png")
  page = folder / "with_attention.html"
  python("tools/report.py", str(folder), f"--output={page}")
  photograph(page, IMAGES / "report.png")
  images = ("--images=digits", "--split=test")
  inside("distance", folder, IMAGES / "inspection/digits_distance.png", *images)
  inside("positions", folder, IMAGES / "inspection/digits_positions.png")


def fashion():
  """What the model of Fashion-MNIST has learned."""
  folder = trained("vit_fashion", "plain")
  images = ("--images=tfds:fashion_mnist", "--split=test")
  of_images = dict(attention=(*images, "--count=8"), distance=images, features=images)
  for kind, more in (of_images | dict(positions=(), filters=(), mistakes=("--count=8",))).items():
    inside(kind, folder, IMAGES / f"inspection/{kind}.png", *more)


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
