"""Position embeddings: none, 1-D, 2-D or relative, and where they are added (Table 8).

  vit-jax study --study=configs/studies/positions.py
  vit-jax study --study=configs/studies/positions.py --scale=paper --plan

small: a ViT of 4 blocks and 16 patches, 8 cells x 3 seeds of 5 epochs of 20,000 images of
Fashion-MNIST (1,560 steps); top-1 of the test images.
paper: ViT-B/16 on JFT-300M, 7 epochs; 5-shot ImageNet. Give the data, which is not public:
--config.data.train.source=..., as for configs/vit_b16_jft.py.

Nothing is chosen: every cell has the settings of the recipe. The paper finds that some position
embedding is better than none, and little difference between kinds and places.
"""

from vit_jax.extras.experiments.studies import Cell, Drawing, Paper, Score, Stage, Study, transfer

CELLS = [
  ("none", "stem"),
  *((kind, place) for kind in ("1d", "2d") for place in ("stem", "every_layer")),
  *((kind, "every_layer_shared") for kind in ("1d", "2d")),
  ("relative", "stem"),
]
TABLE = Paper(
  "configs/studies/paper/table8.csv",
  "accuracy",
  "Table 8, ViT-B/16 pre-trained on JFT-300M, 5-shot ImageNet",
)
SMALL = {
  "model.name": "ViT-Ti/7",
  "model.width": 64,
  "model.mlp_dim": 128,
  "model.heads": 2,
  "data.train.split": "train[:20000]",
  "duration.steps": 1560,
  "schedule.warmup.steps": 150,
  "evaluate_every.steps": 1560,
  "checkpoint.every.steps": 1560,
}


def cells(recipe: str, settings: dict) -> tuple[Cell, ...]:
  """A cell for each kind and place, which differ in nothing else."""
  return tuple(
    Cell(
      label=f"{kind} {place}",
      stage=Stage(
        recipe,
        {**settings, "model.positions": kind, "model.position_place": place},
        name=f"{kind}_{place}",
      ),
      factors={"positions": kind, "position_place": place},
    )
    for kind, place in CELLS
  )


def small() -> Study:
  """On two CPU cores."""
  return Study(
    cells=cells("configs/vit_fashion.py:plain", SMALL),
    drawing=Drawing(x="positions", by="position_place", label="top-1, Fashion-MNIST"),
    paper=TABLE,
  )


def paper() -> Study:
  """On a pod."""
  return Study(
    cells=cells("configs/vit_b16_jft.py", transfer.PROBE),
    drawing=Drawing(x="positions", by="position_place", label="5-shot ImageNet"),
    score=Score("imagenet/5shot"),
    seeds=1,
    paper=TABLE,
  )
