"""Pictures of a run."""

import pathlib

from vit_jax import writers

CURVES = "curves.png"


def curves(folder: pathlib.Path):
  """Draws WORKDIR/curves.png from metrics.jsonl: loss, accuracy and learning rate against step."""
  from matplotlib.figure import Figure  # slow to import, and only needed at the end of a run

  lines = writers.read(folder)
  figure = Figure(figsize=(8, 9), layout="constrained")
  loss, accuracy, rate = figure.subplots(3, sharex=True)
  series = {
    key: [(line["step"], line[key]) for line in lines if isinstance(line.get(key), float)]
    for key in sorted({key for line in lines for key in line})
  }
  loss.plot(*zip(*series["loss"], strict=True), label="training")
  rate.plot(*zip(*series["learning_rate"], strict=True))
  for key, points in series.items():
    if key.endswith("/loss"):
      loss.plot(*zip(*points, strict=True), marker=".", label=key.removesuffix("/loss"))
    if key.endswith(("/top1", "/top5")):
      accuracy.plot(*zip(*points, strict=True), marker=".", label=key)
  loss.set(ylabel="loss", yscale="log")
  accuracy.set(ylabel="accuracy")
  rate.set(ylabel="learning rate", xlabel="step")
  for axes in (loss, accuracy):
    if axes.get_legend_handles_labels()[0]:
      axes.legend()
  for axes in (loss, accuracy, rate):
    axes.grid(alpha=0.3)
  figure.savefig(folder / CURVES, dpi=120)
