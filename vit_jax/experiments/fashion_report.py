"""Reports the runs of `fashion_transfer`: means over seeds, as a table and as a page."""

import pathlib
import statistics

from vit_jax.experiments.fashion_halves import Size
from vit_jax.experiments.fashion_transfer import PARAMETERS, SIDES, STARTS
from vit_jax.process.columns import aligned
from vit_jax.storage import files


def summary(rows: list[dict]) -> list[dict]:
  """Mean and standard deviation (n - 1) over seeds, for each start, image size and parameters."""
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
  """The text of OUTPUT/transfer.md."""
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
is in [transfer.csv](transfer.csv).

| start | parameters | {sides} |
|---|---|---|---|
{table}

- The model has 4 blocks of width 96 and patches of 4 x 4 pixels.
- Pre-training takes {size.epochs} epochs at 28 px, on {5 * size.pretraining:,} images of the
  classes 0 to 4 (t-shirt, trouser, pullover, dress, coat). It reaches {reached} of
  {5 * size.test:,} test images.
- Fine-tuning is `configs/finetune.py` with batch 64, learning rate 0.03, whole images and no
  warm-up, which was the recipe's default when this was measured. The rate is from the
  paper's grid and was not searched for. It starts from the moving average of pre-training.
- Training from scratch is `configs/vit_fashion.py`: Adam with warm-up, since the SGD of fine-tuning
  is meant for parameters that are already good.
- The moving average has the factor 0.98.
- At 56 px the same images are enlarged: there are 196 tokens instead of 49, but no more detail.
"""


def as_table(lines: list[dict]) -> str:
  """The summary for the terminal."""
  rows = [["start", "size", "parameters", "top-1", "seeds"]]
  for line in lines:
    figure = f"{line['mean']:.2%} ± {line['deviation']:.2%}"
    name = [line["start"], f"{line['side']} px", line["parameters"]]
    rows.append([*name, figure, f"{line['seeds']}"])
  return aligned(rows, left=(0, 1, 2))


def write(rows: list[dict], output: pathlib.Path, size: Size):
  """Writes OUTPUT/transfer.csv and OUTPUT/transfer.md."""
  files.make_folder(output)
  files.write_csv(output / "transfer.csv", [rows[0].keys(), *(row.values() for row in rows)])
  files.write_text(output / "transfer.md", document(summary(rows), size))
