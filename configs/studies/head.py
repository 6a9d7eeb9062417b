"""The input of the head: the class token or the mean of the patches, by learning rate (Figure 9).

  vit-jax study --study=configs/studies/head.py
  vit-jax study --study=configs/studies/head.py --scale=paper --plan

small: a ViT of 4 blocks and 16 patches, 8 cells x 3 seeds of 5 epochs of 20,000 images of
Fashion-MNIST (1,560 steps); top-1 of the test images, after each epoch.
paper: ViT-B/16 on JFT-300M, 7 epochs; 5-shot ImageNet. Give the data, which is not public:
--config.data.train.source=..., as for configs/vit_b16_jft.py. The mean has a linear head; the class
token has a representation layer before it, as in the recipe.

The learning rate is what varies, so nothing is chosen. The paper finds that both work equally well,
each with its own learning rate: 8e-4 for the class token and 3e-4 for the mean. It draws curves
over the epochs, as the figure here does, and gives no numbers.
"""

from vit_jax.extras.experiments.studies import Cell, Drawing, Score, Stage, Study, transfer

HEADS = {"class token": "class_token", "mean": "gap"}
SMALL = {
  "model.name": "ViT-Ti/7",
  "model.width": 64,
  "model.mlp_dim": 128,
  "model.heads": 2,
  "data.train.split": "train[:20000]",
  "duration.steps": 1560,
  "schedule.warmup.steps": 150,
  "evaluate_every.steps": 312,
  "checkpoint.every.steps": 1560,
}


def cell(recipe: str, settings: dict, head: str, rate: float) -> Cell:
  """A head with a learning rate."""
  changes = {"model.pool": HEADS[head], "schedule.learning_rate": rate}
  return Cell(
    label=f"{head} {rate:g}",
    stage=Stage(recipe, {**settings, **changes}, name=f"{HEADS[head]}_{rate:g}"),
    factors={"head": head, "learning_rate": rate},
  )


def small() -> Study:
  """On two CPU cores."""
  rates = (5e-4, 1.5e-3, 4.5e-3, 1.35e-2)  # three times each, around the recipe's 1.5e-3
  return Study(
    cells=tuple(
      cell("configs/vit_fashion.py:plain", SMALL, head, rate) for head in HEADS for rate in rates
    ),
    drawing=Drawing(x="epoch", by="learning_rate", panel="head", label="top-1, Fashion-MNIST"),
  )


def paper() -> Study:
  """On a pod: the paper's three runs, and the fourth that completes the square."""
  linear = {"model.representation_layer": False}
  compared = [
    cell("configs/vit_b16_jft.py", transfer.PROBE | (linear if head == "mean" else {}), head, rate)
    for head in HEADS
    for rate in (3e-4, 8e-4)
  ]
  return Study(
    cells=tuple(compared),
    drawing=Drawing(x="epoch", by="learning_rate", panel="head", label="5-shot ImageNet"),
    score=Score("imagenet/5shot"),
    seeds=1,
  )
