"""What the runs without labels of `masked_study` have learned: losses, curves and pictures."""

import pathlib
import statistics

from vit_jax.experiments.masked_study import RATES, TARGETS, Size, pretraining
from vit_jax.plots import charts, curves
from vit_jax.storage import files, metrics_log

HELD_OUT = "held_out"  # the test images; name of the set in configs/masked_fashion.py
CURVES = "masked_learning.png"


def measured(folder: pathlib.Path, size: Size) -> list[dict]:
  """Mean and deviation over seeds of the last losses on the test images, for targets and rates."""
  return [of_kind(folder, target, rate, size) for target in TARGETS for rate in RATES]


def of_kind(folder: pathlib.Path, target: str, rate: float, size: Size) -> dict:
  """The figures of one target and rate."""
  runs = [pretraining(folder, target, rate, seed, size) for seed in size.seeds]
  found = [last(run.folder) for run in runs]
  losses = [one[f"{HELD_OUT}/patch_loss"] for one in found]
  return dict(
    target=target,
    rate=rate,
    loss=statistics.mean(losses),
    deviation=statistics.stdev(losses),
    constant=statistics.mean(one[f"{HELD_OUT}/patch_constant_loss"] for one in found),
  )


def last(folder: pathlib.Path) -> dict:
  """The last line of metrics.jsonl with the loss on the test images."""
  lines = metrics_log.read(folder)
  return [line for line in lines if f"{HELD_OUT}/patch_loss" in line][-1]


def section(found: list[dict]) -> str:
  """The section of the page, in Markdown; `found` as `measured`."""
  rows = "\n".join(
    f"| `{one['target']}` | {one['rate']:.0%} | {one['loss']:.4f} ± {one['deviation']:.4f} | "
    f"{one['constant']:.4f} | {one['loss'] / one['constant']:.1%} |"
    for one in found
  )
  pictures = " | ".join(
    f"![Eight test images, {target}]({picture_name(target)})" for target in TARGETS
  )
  return f"""\
The loss on the test images at the end. `constant` is that of the best prediction that is the same
for all patches, and `share` the loss divided by it:

| target | corrupted | loss | constant | share |
|---|---|---|---|---|
{rows}

![Training loss, as a share of the best constant prediction's]({CURVES})

Eight test images at the end, for each target: original, corrupted (hidden patches are grey), and
with the prediction in the corrupted places.

| {" | ".join(f"`{target}`" for target in TARGETS)} |
|{"---|" * len(TARGETS)}
| {pictures} |"""


def draw(folder: pathlib.Path, path: pathlib.Path, size: Size):
  """Draws the training loss, as a share of the best constant prediction's, against the step."""
  from matplotlib.figure import Figure  # slow to import, and only needed at the end

  figure = Figure(figsize=(6, 4), layout="constrained")
  axes = figure.subplots()
  for target in TARGETS:
    for rate, style in zip(RATES, ("-", "--"), strict=True):
      run = pretraining(folder, target, rate, size.seeds[0], size)
      lines = [line for line in metrics_log.read(run.folder) if "loss" in line]
      shares = [line["loss"] / line["train/constant_loss"] for line in lines]
      label, color = f"{target}, {rate:.0%}", f"C{TARGETS.index(target)}"
      axes.plot([line["step"] for line in lines], shares, style, label=label, color=color)
  axes.set(xlabel="step", ylabel="loss / best constant prediction's loss")
  axes.grid(alpha=0.3)
  charts.legend_above(axes)
  curves.save(figure, path)


def picture(folder: pathlib.Path, target: str, size: Size) -> bytes:
  """The newest picture of a run: original, corrupted and predicted test images."""
  run = pretraining(folder, target, RATES[0], size.seeds[0], size)
  return (run.folder / f"pictures/{HELD_OUT}/patches/{size.pretraining:08}.png").read_bytes()


def picture_name(target: str) -> str:
  """The name of the picture of a target in the output folder."""
  return f"masked_{target}.png"


def write(folder: pathlib.Path, output: pathlib.Path, size: Size) -> list[dict]:
  """Writes curves and pictures, and returns what is `measured`."""
  files.make_folder(output)
  draw(folder, output / CURVES, size)
  for target in TARGETS:
    files.write_bytes(output / picture_name(target), picture(folder, target, size))
  return measured(folder, size)
