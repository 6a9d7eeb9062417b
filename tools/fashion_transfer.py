"""Transfer between the two halves of Fashion-MNIST's classes, on real images (Section 3.2).

python tools/fashion_transfer.py [--workdir=DIR] [--output=DIR] [--fast] [--format=json]

Pre-trains a small ViT on the classes 0 to 4 and fine-tunes it on a few images of the classes 5 to
9, at 28 and at 56 pixels, each scored with the parameters of the last step and with their moving
average; beside it the same model from scratch with as many steps. Three seeds. OUTPUT/results.md
gets the means and standard deviations, OUTPUT/results.csv every figure.

It needs Fashion-MNIST prepared: python tools/prepare_data.py build fashion_mnist. Stopped at any
moment, the same command goes on where it was; what has been measured is not measured again.

Exit status: 0 done; 2 wrong usage, or Fashion-MNIST is not there; otherwise that of the run that
failed or was stopped (75: start it again).
"""

import argparse
import csv
import dataclasses
import json
import pathlib
import statistics
import sys
import time

from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from tools.ending import ending
from tools.ending import folder as made
from vit_jax.config import ConfigError, command_line
from vit_jax.data import sources
from vit_jax.evaluation import evaluate
from vit_jax.experiments import runs
from vit_jax.process import console
from vit_jax.storage import metrics_log

HALVES = {"first": range(5), "second": range(5, 10)}
SIDES = (28, 56)  # pixels
STARTS = {"fine-tuned": "pre-trained on the other classes", "scratch": "from scratch"}
PARAMETERS = {"last": "of the last step", "average": "moving average"}
MODEL = [
  "--config.model.depth=4",
  "--config.model.width=96",
  "--config.model.mlp_dim=192",
  "--config.model.heads=3",
  "--config.model.num_classes=5",
]
# As configs/vit_fashion.py: crops cost accuracy on images so small.
WHOLE = ["--config.data.crop_area=(1.0, 1.0)", "--config.data.crop_aspect=(1.0, 1.0)"]


@dataclasses.dataclass(frozen=True)
class Size:
  """How much is done.

  Attributes:
    seeds: of runs.
    pretraining: images a class of the first half, all that there are at most.
    epochs: of pre-training.
    images: a class of the second half to fine-tune on.
    steps: of fine-tuning and from scratch, 64 images each.
    test: test images a class.
  """

  seeds: tuple[int, ...] = (0, 1, 2)
  pretraining: int = 6000
  epochs: int = 3
  images: int = 200
  steps: int = 200
  test: int = 1000


FAST = Size(seeds=(0, 1), pretraining=64, epochs=1, images=16, steps=3, test=16)


def write_half(source, folder: pathlib.Path, classes, per_class: int):
  """Writes the first images of each class as FOLDER/CLASS/NUMBER.png, unless they are there.

  Args:
    source: examples with pixels or encoded images, and one label each.
    folder: appears as a whole or not at all.
    classes: labels that are taken.
    per_class: most images of a class.
  """
  if folder.is_dir():
    return
  part = folder.with_name(folder.name + ".part")
  counts = dict.fromkeys(classes, 0)
  for index in range(len(source)):
    image, (label,), _ = source[index]
    if counts.get(label, per_class) >= per_class:
      continue
    path = part / str(label) / f"{counts[label]:05d}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(image, bytes):
      path.write_bytes(image)
    else:
      Image.fromarray(image.squeeze()).save(path)
    counts[label] += 1
  part.rename(folder)


def images_of(folder: pathlib.Path, half: str, split: str, size: Size) -> pathlib.Path:
  """Where the images of a half lie; another number of them lies elsewhere."""
  train = {"first": size.pretraining, "second": size.images}[half]
  return folder / "images" / f"{half}_{split}_{train if split == 'train' else size.test}"


def prepare(folder: pathlib.Path, size: Size):
  """Writes both halves of both splits.

  Raises:
    SourceError: Fashion-MNIST is not prepared.
  """
  for split in ("train", "test"):
    source = sources.open_source("tfds:fashion_mnist", split=split, num_classes=10)
    for half, classes in HALVES.items():
      images = images_of(folder, half, split, size)
      write_half(source, images, classes, int(images.name.rpartition("_")[2]))


def settings(folder: pathlib.Path, half: str, seed: int, size: Size) -> list[str]:
  """What all runs share."""
  return [
    f"--config.seed={seed}",
    "--config.batch_size=64",
    f"--config.data.train.source=folder:{images_of(folder, half, 'train', size)}",
    "--config.data.train.split=",
    f"--config.data.evaluate.test.source=folder:{images_of(folder, half, 'test', size)}",
    "--config.data.evaluate.test.split=",
    *MODEL,
    *WHOLE,
  ]


def pretraining(folder: pathlib.Path, seed: int, size: Size) -> list[str]:
  """The flags of a run on the first half."""
  return [
    f"--config={ROOT}/configs/vit_fashion.py",
    f"--workdir={run_folder(folder, 'pretraining', seed)}",
    f"--config.duration.epochs={size.epochs}",
    "--config.schedule.warmup.epochs=0.3",
    *settings(folder, "first", seed, size),
  ]


def transfer(folder: pathlib.Path, start: str, side: int, seed: int, size: Size) -> list[str]:
  """The flags of a run on the second half, fine-tuned or from scratch."""
  recipe = {
    "fine-tuned": [
      f"--config={ROOT}/configs/finetune.py:ViT-Ti/4,cifar10",
      f"--config.init_from={run_folder(folder, 'pretraining', seed)}",
      "--config.schedule.learning_rate=0.03",
      "--config.model.compute_dtype=float32",
    ],
    # From scratch with what pre-training uses: SGD without warm-up is for parameters that are good.
    "scratch": [
      f"--config={ROOT}/configs/vit_fashion.py",
      f"--config.schedule.warmup.steps={size.steps // 10}",
      "--config.evaluate_every.epochs=0",
      "--config.checkpoint.every.epochs=0",
    ],
  }[start]
  return [
    *recipe,
    f"--workdir={run_folder(folder, start, seed, side)}",
    f"--config.duration.steps={size.steps}",
    f"--config.data.image_size={side}",
    "--config.optimizer.ema=0.98",
    *settings(folder, "second", seed, size),
  ]


def run_folder(folder: pathlib.Path, start: str, seed: int, side: int = 28) -> pathlib.Path:
  """The workdir of a run."""
  return folder / "runs" / f"{start}_{side}px_seed{seed}"


def run(flags: list[str]):
  """Runs the main program to its end; leaves with its exit status where that is not 0, or 75."""
  with runs.Children() as children:
    status = children.call([sys.executable, "-m", "vit_jax.main", *flags])
  if children.asked:
    sys.exit(command_line.STOPPED)
  if status:
    sys.exit(status if status > 0 else 1)


def measured(flags: list[str]) -> dict[str, float]:
  """{"average": ..., "last": ...}, the top-1 of a run, which is done first unless it has been.

  Raises:
    ConfigError: it has been done with other flags.
  """
  (folder,) = (pathlib.Path(f.partition("=")[2]) for f in flags if f.startswith("--workdir="))
  done = folder / "figures.json"
  if not done.is_file():
    run(flags)
    average = evaluate.evaluations_in(folder)[-1]
    run([*flags, "--mode=evaluate", "--config.evaluate_average=False"])
    last = json.loads((folder / evaluate.RESULT).read_text())
    figures = {"average": average["test/top1"], "last": last["test/top1"]}
    done.write_text(json.dumps({"flags": flags, "top1": figures}, indent=2) + "\n")
  stored = json.loads(done.read_text())
  if stored["flags"] != flags:
    raise ConfigError(f"{folder} was measured with other flags; use another --workdir.")
  return stored["top1"]


def measure(folder: pathlib.Path, size: Size) -> list[dict]:
  """Every figure, as rows of the CSV; runs what has not been run yet."""
  began, rows = time.monotonic(), []

  def add(start, side, seed, flags):
    figures = measured(flags)
    for parameters in PARAMETERS:
      rows.append(
        dict(start=start, side=side, seed=seed, parameters=parameters, top1=figures[parameters])
      )
    shown = ", ".join(f"{name} {figures[name]:.2%}" for name in PARAMETERS)
    spent = metrics_log.clock(time.monotonic() - began)
    print(f"{spent}  seed {seed}, {start}, {side} px: {shown}", file=sys.stderr, flush=True)

  for seed in size.seeds:
    add("pretraining", 28, seed, pretraining(folder, seed, size))
    for side in SIDES:
      for start in STARTS:
        add(start, side, seed, transfer(folder, start, side, seed, size))
  return rows


def summary(rows: list[dict]) -> list[dict]:
  """Mean and standard deviation (n - 1) over the seeds, one row for each way to start and score."""
  groups = {}
  for row in rows:
    key = (row["start"], row["side"], row["parameters"])
    groups.setdefault(key, []).append(row["top1"])
  return [
    dict(
      start=start,
      side=side,
      parameters=parameters,
      mean=statistics.mean(values),
      deviation=statistics.stdev(values),
      seeds=len(values),
    )
    for (start, side, parameters), values in groups.items()
  ]


def document(lines: list[dict], size: Size) -> str:
  """OUTPUT/results.md."""
  found = {(line["start"], line["side"], line["parameters"]): line for line in lines}
  show = lambda *key: f"{found[key]['mean']:.2%} ± {found[key]['deviation']:.2%}"
  table = "\n".join(
    f"| {STARTS[start]} | {PARAMETERS[parameters]} | "
    + " | ".join(show(start, side, parameters) for side in SIDES)
    + " |"
    for start in STARTS
    for parameters in PARAMETERS
  )
  sides = " | ".join(f"{side} px" for side in SIDES)
  reached = show("pretraining", 28, "average")
  return f"""# Transfer between the halves of Fashion-MNIST

```
python tools/fashion_transfer.py
```

pre-trains a small ViT on the classes 0 to 4 of Fashion-MNIST and fine-tunes it on the classes 5 to
9, beside training from scratch. The table shows top-1 on {5 * size.test:,} test images of the
classes 5 to 9 (sandal, shirt, sneaker, bag, ankle boot), after {size.steps} steps of 64 images,
drawn from {5 * size.images:,} training images of these classes: mean and standard deviation over
{len(size.seeds)} seeds, which change the initial values and the order of the images. Every figure
is in [results.csv](results.csv).

| start | parameters | {sides} |
|---|---|---|---|
{table}

- The model has 4 blocks of width 96 and patches of 4 x 4 pixels.
- Pre-training takes {size.epochs} epochs at 28 px, on {5 * size.pretraining:,} images of the
  classes 0 to 4 (t-shirt, trouser, pullover, dress, coat). It reaches {reached} of
  {5 * size.test:,} test images.
- Fine-tuning is `configs/finetune.py` with batch 64 and learning rate 0.03. The rate is from the
  paper's grid and was not searched for. It starts from the moving average of pre-training.
- Training from scratch is `configs/vit_fashion.py`: Adam with warm-up, since the SGD of fine-tuning
  is meant for parameters that are already good.
- The moving average has the factor 0.98.
- At 56 px the same images are enlarged: there are 196 tokens instead of 49, but no more detail.
"""


def as_table(lines: list[dict]) -> str:
  """The summary for the terminal."""
  return "\n".join(
    f"{line['start']:<12} {line['side']} px  {line['parameters']:<8} "
    f"{line['mean']:.2%} ± {line['deviation']:.2%} ({line['seeds']} seeds)"
    for line in lines
  )


def write(rows: list[dict], output: pathlib.Path, size: Size):
  """OUTPUT/results.csv and OUTPUT/results.md."""
  output.mkdir(parents=True, exist_ok=True)
  with (output / "results.csv").open("w", newline="", encoding="utf-8") as file:
    writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
  (output / "results.md").write_text(document(summary(rows), size), encoding="utf-8")


def parser() -> argparse.ArgumentParser:
  """The command line."""
  result = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  result.add_argument(
    "--workdir", type=pathlib.Path, help="images and runs; default: workdirs/fashion_transfer"
  )
  result.add_argument(
    "--output", type=pathlib.Path, help="folder of results.md and results.csv; default: docs"
  )
  result.add_argument(
    "--fast", action="store_true", help="a few images and steps, to try it: into the workdir alone"
  )
  result.add_argument("--format", choices=("table", "json"), default="table", help="default: table")
  return result


def main(arguments: list[str] | None = None):
  """Measures what is missing and writes the results.

  Args:
    arguments: the command line without the program's name; None: this process's own.
  """
  args = parser().parse_args(arguments)
  size, name = (FAST, "fashion_transfer_fast") if args.fast else (Size(), "fashion_transfer")
  folder = (args.workdir or ROOT / "workdirs" / name).absolute()
  output = args.output or (folder if args.fast else ROOT / "docs")
  with ending("fashion_transfer"):
    made(folder, "--workdir")
    made(output, "--output")
    prepare(folder, size)
    rows = measure(folder, size)
    write(rows, output, size)
  lines = summary(rows)
  print(json.dumps(lines, indent=2) if args.format == "json" else as_table(lines))
  print(f"Written: {output / 'results.md'}, {output / 'results.csv'}", file=sys.stderr)


if __name__ == "__main__":
  console.of_tool()
  main()
