"""Transfer between the two halves of Fashion-MNIST's classes: the runs and their figures."""

import json
import pathlib
import sys
import time

from vit_jax.config import ConfigError, Stopped, command_line
from vit_jax.evaluation import evaluate
from vit_jax.experiments import runs
from vit_jax.experiments.fashion_halves import Size, images_of
from vit_jax.storage import files, metrics_log

ROOT = pathlib.Path(__file__).resolve().parents[2]
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
# As in configs/vit_fashion.py: crops cost accuracy on such small images.
WHOLE = ["--config.data.crop_area=(1.0, 1.0)", "--config.data.crop_aspect=(1.0, 1.0)"]


def settings(folder: pathlib.Path, half: str, seed: int, size: Size) -> list[str]:
  """The flags that all runs share."""
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
      f"--config={ROOT}/configs/finetune.py:ViT-Ti/4,cifar10,inception",
      f"--config.init_from={run_folder(folder, 'pretraining', seed)}",
      "--config.schedule.learning_rate=0.03",
      "--config.schedule.warmup.steps=0",
      "--config.model.compute_dtype=float32",
    ],
    # The recipe of pre-training: fine-tuning's SGD without warm-up needs good initial parameters.
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
  """Runs the main program to its end.

  Raises:
    Stopped: a signal stopped it.
    SystemExit: the run failed; the exit status is that of the run.
  """
  with runs.Children() as children:
    status = children.call([sys.executable, "-m", "vit_jax.main", *flags])
  if children.asked or status == command_line.STOPPED:
    raise Stopped("A run was stopped by a signal; start the same command again to go on.")
  if status:
    sys.exit(status if status > 0 else 1)


def measured(flags: list[str]) -> dict[str, float]:
  """The top-1 of a run, {"average": ..., "last": ...}; trains the run if that is not done yet.

  Raises:
    ConfigError: the run was done with other flags.
  """
  (folder,) = (pathlib.Path(f.partition("=")[2]) for f in flags if f.startswith("--workdir="))
  done = folder / "figures.json"
  if not done.is_file():
    run(flags)
    average = evaluate.evaluations_in(folder)[-1]
    run([*flags, "--mode=evaluate", "--config.evaluate_average=False"])
    last = json.loads((folder / evaluate.RESULT).read_text())
    figures = {"average": average["test/top1"], "last": last["test/top1"]}
    files.write_text(done, json.dumps({"flags": flags, "top1": figures}, indent=2) + "\n")
  stored = json.loads(done.read_text())
  if stored["flags"] != flags:
    raise ConfigError(f"{folder} was measured with other flags; use another --workdir.")
  return stored["top1"]


def measure(folder: pathlib.Path, size: Size) -> list[dict]:
  """All figures, as rows of the CSV; trains the runs that are not done yet."""
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
