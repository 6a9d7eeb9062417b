"""Reports the runs of `masked_study`: means over seeds, as a table and as a figure."""

import pathlib
import statistics

from vit_jax.experiments import masked_learned
from vit_jax.experiments.masked_study import STARTS, Size
from vit_jax.plots import charts, curves
from vit_jax.process.columns import aligned
from vit_jax.storage import files

PAGE, FIGURES, PLOT = "masked.md", "masked.csv", "masked.png"
KEYS = ("start", "target", "rate", "labels")


def summary(rows: list[dict]) -> list[dict]:
  """Mean and standard deviation (n - 1) of the accuracy of every cell over its seeds."""
  groups = {}
  for row in rows:
    groups.setdefault(tuple(row[key] for key in KEYS), []).append(row)
  return [
    dict(zip(KEYS, key, strict=True))
    | dict(
      learning_rate=found[0]["learning_rate"],
      mean=statistics.mean(row["top1"] for row in found),
      deviation=statistics.stdev(row["top1"] for row in found),
      seeds=len(found),
    )
    for key, found in groups.items()
  ]


def shown(line: dict) -> str:
  """Mean and deviation in per cent."""
  return f"{line['mean']:.2%} ± {line['deviation']:.2%}"


def by_start(lines: list[dict]) -> dict[tuple[str, int], dict]:
  """The lines of the default target and rate, by start and number of labels."""
  default = lines[0]["target"], lines[0]["rate"]
  return {
    (line["start"], line["labels"]): line
    for line in lines
    if (line["target"], line["rate"]) == default
  }


def document(lines: list[dict], learned: list[dict], size: Size) -> str:
  """The text of OUTPUT/masked.md; `learned` as `masked_learned.measured`."""
  return f"""# Masked patch prediction on Fashion-MNIST

```
python tools/masked_study.py
```

pre-trains a small ViT on the 60,000 training images without their labels
(`configs/masked_fashion.py`, {size.pretraining:,} steps of 64 images), then trains it on a few
labelled images (`configs/vit_fashion.py`, 64 a step). It has 4 blocks of width 64 and patches of
7 x 7 pixels. The same model from scratch stands beside it: with as many labelled steps, and with as
many steps in all. Top-1 on the 10,000 test images, mean and standard deviation over
{len(size.seeds)} seeds:

{starts(lines, size)}

![Accuracy against the number of labels]({PLOT})

Targets and rates of corruption, with {size.compared:,} labels:

{kinds(lines, size)}

## What is learned without labels

{masked_learned.section(learned)}

## How it was measured

{method(size)}
"""


def starts(lines: list[dict], size: Size) -> str:
  """The table of starts and numbers of labels."""
  found = by_start(lines)
  rows = [
    f"| {words} | " + " | ".join(shown(found[start, n]) for n in size.labels) + " |"
    for start, words in STARTS.items()
  ]
  head = " | ".join(f"{n:,} labels" for n in size.labels)
  return "\n".join([f"| start | {head} |", "|---|" + "---|" * len(size.labels), *rows])


def kinds(lines: list[dict], size: Size) -> str:
  """The table of targets and rates, the best first."""
  found = [line for line in lines if (line["start"], line["labels"]) == ("masked", size.compared)]
  rows = [
    f"| `{line['target']}` | {line['rate']:.0%} | {shown(line)} | {line['learning_rate']:g} |"
    for line in sorted(found, key=lambda line: -line["mean"])
  ]
  return "\n".join(["| target | corrupted | top-1 | learning rate |", "|---|---|---|---|", *rows])


def method(size: Size) -> str:
  """What a reader must know to judge the figures."""
  steps = ", ".join(f"{steps:,} for {n:,} labels" for n, steps in size.labels.items())
  rates = ", ".join(f"{rate:g}" for rate in size.learning_rates)
  return f"""- Labelled steps: {steps}.
- The labelled images are random, the same for all runs, from the first nine tenths of the training
  images.
- The last tenth chooses the learning rate of each row and column, with the first seed, among
  {rates}. The test images are scored with the chosen one alone.
- Seeds change initial values, the order of images and the corruption. Every figure is in
  [{FIGURES}]({FIGURES})."""


def plot(lines: list[dict], path: pathlib.Path):
  """Draws accuracy against the number of labels, with a curve for each start."""
  from matplotlib.figure import Figure  # slow to import, and only needed at the end

  figure = Figure(figsize=(6, 4), layout="constrained")
  axes = figure.subplots()
  found = by_start(lines)
  for start, words in STARTS.items():
    points = [(n, line) for (own, n), line in found.items() if own == start]
    axes.errorbar(
      [n for n, _ in points],
      [line["mean"] for _, line in points],
      [line["deviation"] for _, line in points],
      marker="o",
      capsize=3,
      label=words,
    )
  axes.set(xscale="log", xlabel="labelled images", ylabel="top-1 on the test images")
  charts.round_log_ticks(axes.xaxis)
  axes.grid(alpha=0.3)
  charts.legend_above(axes)
  curves.save(figure, path)


def as_table(lines: list[dict]) -> str:
  """The summary for the terminal."""
  rows = [["start", "target", "corrupted", "labels", "learning rate", "top-1", "seeds"]]
  for line in lines:
    kind = [line["target"], f"{line['rate']:.0%}"] if line["start"] == "masked" else ["", ""]
    figures = [f"{line['labels']:,}", f"{line['learning_rate']:g}", shown(line), f"{line['seeds']}"]
    rows.append([line["start"], *kind, *figures])
  return aligned(rows)


def write(rows: list[dict], workdir: pathlib.Path, output: pathlib.Path, size: Size):
  """Writes the page, its plots and pictures, and all figures; `workdir` holds the runs."""
  lines = summary(rows)
  learned = masked_learned.write(workdir, output, size)
  files.write_csv(output / FIGURES, [rows[0].keys(), *(row.values() for row in rows)])
  plot(lines, output / PLOT)
  files.write_text(output / PAGE, document(lines, learned, size))
