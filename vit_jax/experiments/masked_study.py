"""Runs that tell whether masked patch prediction helps where labels are few, on Fashion-MNIST.

The labelled images are random subsets of the first nine tenths of the training images. The last
tenth chooses learning rates, in the same way for every start. The test images score the chosen.
"""

import dataclasses
import pathlib
import sys
from collections.abc import Iterator

from vit_jax.experiments import runs
from vit_jax.experiments.runs import Run
from vit_jax.experiments.studies import ledger

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCE = "tfds:fashion_mnist"
TARGETS = ("mean_color", "down4", "pixels")
RATES = (0.5, 0.15)
# Less than the recipes' model, so that 120 runs take an hour or two.
MODEL = {"model.name": "ViT-Ti/7", "model.width": 64, "model.mlp_dim": 128, "model.heads": 2}
STARTS = {
  "masked": "after masked patch prediction",
  "scratch": "from scratch, as many labelled steps",
  "longer": "from scratch, as many steps in all",
}


@dataclasses.dataclass(frozen=True)
class Size:
  """The size of the study.

  Attributes:
    seeds: seeds of the runs; the first one chooses the learning rates.
    pretraining: steps without labels.
    labels: {labelled images: steps on them}.
    compared: labelled images with which targets and rates are compared.
    learning_rates: of the labelled runs, to choose from.
  """

  seeds: tuple[int, ...] = (0, 1, 2)
  pretraining: int = 2000
  labels: dict[int, int] = dataclasses.field(
    default_factory=lambda: {100: 300, 1000: 500, 10_000: 1500}
  )
  compared: int = 1000
  learning_rates: tuple[float, ...] = (3e-4, 1e-3, 3e-3, 1e-2)


FAST = Size((0, 1), 4, {100: 3, 200: 3}, 100, (1e-3, 3e-3))


@dataclasses.dataclass(frozen=True)
class Arm:
  """What is compared: a start, and for masked patch prediction its target and rate."""

  labels: int
  start: str = "masked"
  target: str = TARGETS[0]
  rate: float = RATES[0]

  def name(self) -> str:
    """A name for messages and folders."""
    kind = f"_{self.target}_{self.rate:g}" if self.start == "masked" else ""
    return f"{self.start}{kind}_{self.labels}"


def cells(size: Size) -> list[Arm]:
  """All cells: every start with every number of labels, then every target with every rate."""
  found = [Arm(labels, start) for labels in size.labels for start in STARTS]
  found += [Arm(size.compared, "masked", target, rate) for target in TARGETS for rate in RATES]
  return list(dict.fromkeys(found))


def pretraining(folder: pathlib.Path, target: str, rate: float, seed: int, size: Size) -> Run:
  """A run without labels, on all training images."""
  name = f"pretraining_{target}_{rate:g}_seed{seed}"
  flags = {
    "seed": seed,
    "duration.steps": size.pretraining,
    "evaluate_every.steps": size.pretraining // 2,
    "checkpoint.every.steps": size.pretraining // 4,
    "schedule.warmup.steps": size.pretraining // 10,
    "data.train.split": "train",
    "reconstruct.held_out.split": "test",
    "nearest.neighbours.train.source": "",
    "nearest.neighbours.test.source": "",
    "masked.target": target,
    "masked.rate": rate,
  }
  return run("masked_fashion.py", folder, name, flags)


def labelled_steps(cell: Arm, size: Size) -> int:
  """The length of a run with labels."""
  return size.labels[cell.labels] + (size.pretraining if cell.start == "longer" else 0)


def labelled(
  folder: pathlib.Path, cell: Arm, learning_rate: float, seed: int, size: Size, *, score: bool
) -> Run:
  """A run with labels, evaluated on the test images, or on those that choose learning rates."""
  total = labelled_steps(cell, size)
  part = "test" if score else "chosen_on"
  name = f"{cell.name()}_{learning_rate:g}_seed{seed}_{part}"
  flags = {
    "seed": seed,
    "duration.steps": total,
    "evaluate_every.steps": total,
    "checkpoint.every.steps": total,
    "schedule.learning_rate": learning_rate,
    "schedule.warmup.steps": total // 10,
    "optimizer.ema": 0.0,
    "data.train.split": "train[:90%]",
    "data.train.subset": cell.labels,
    "data.evaluate.test.split": "test" if score else "train[90%:]",
  }
  if cell.start != "masked":
    return run("vit_fashion.py", folder, name, flags)
  before = pretraining(folder, cell.target, cell.rate, seed, size)
  return run("vit_fashion.py", folder, name, flags | {"new_head": True}, before)


def run(
  recipe: str, folder: pathlib.Path, name: str, flags: dict, before: Run | None = None
) -> Run:
  """A run of a recipe in FOLDER/runs/NAME-SUM, from the weights of `before`.

  The sum is of all that it computes: a run with other settings is another run.
  """
  path = str(ROOT / "configs" / recipe)
  overrides = tuple(f"--config.{key}={value}" for key, value in (MODEL | flags).items())
  sum_ = ledger.fingerprint(path, overrides, ledger.name_of(before), "train")
  if before:
    overrides += (f"--config.init_from={before.folder}",)
  return Run(name, path, folder / "runs" / f"{name}-{sum_}", overrides)


def measure(folder: pathlib.Path, size: Size) -> Iterator[dict]:
  """Trains what is not trained yet; yields a row for each cell and seed.

  Raises:
    ConfigError, RunError, Stopped: as `runs.execute`.
  """
  for cell in cells(size):
    execute(before(folder, cell, size.seeds[:1], size))
    trials = {
      rate: labelled(folder, cell, rate, size.seeds[0], size, score=False)
      for rate in size.learning_rates
    }
    execute(trials.values())
    chosen = max(trials, key=lambda rate: top1(trials[rate]))
    execute(before(folder, cell, size.seeds, size))
    scored = {seed: labelled(folder, cell, chosen, seed, size, score=True) for seed in size.seeds}
    execute(scored.values())
    for seed, one in scored.items():
      yield dataclasses.asdict(cell) | dict(
        seed=seed, learning_rate=chosen, steps=labelled_steps(cell, size), top1=top1(one)
      )


def before(folder: pathlib.Path, cell: Arm, seeds: tuple[int, ...], size: Size) -> list[Run]:
  """The runs without labels that a cell starts from."""
  if cell.start != "masked":
    return []
  return [pretraining(folder, cell.target, cell.rate, seed, size) for seed in seeds]


def execute(wanted):
  """Starts the runs that are not done."""
  runs.execute(wanted, say=lambda line: print(line, file=sys.stderr, flush=True))


def top1(done: Run) -> float:
  """The accuracy of a run on its evaluation set."""
  (value,) = runs.accuracies(runs.result(done.folder)).values()
  return value
