"""Random subsets of the pre-training set, the same steps for each (Figure 4).

  vit-jax study --study=configs/studies/subsets.py
  vit-jax study --study=configs/studies/subsets.py --scale=paper --plan

small: two ViTs and two ResNets of configs/fashion_halves.py, 1,200 steps on 900, 3,000, 9,000 and
all 30,000 images of the classes 0 to 4 of Fashion-MNIST: 16 cells x 3 seeds. The score is the
5-shot accuracy on the classes 5 to 9.
paper: ViT-b/32, B/32, L/32 and L/16, R50x1 and R152x2 on 9, 30, 90 and all 303 million images of
JFT-300M, 517,822 steps each, by configs/jft_subsets.py; 5-shot ImageNet. Give the data, which is
not public: --config.data.train.source=..., as for that recipe.

A smaller subset lies inside a larger one, and all seeds see the same. Nothing is chosen: every cell
of a model has the same settings, and all small models have the recipe's. The small subsets are the
paper's in proportion, rounded.
Early stopping as in the paper: the score is the best of all evaluations, and the checkpoint of that
evaluation is kept. It is the best on the very images that it is scored on, which flatters every
cell a little. The small runs are evaluated every 100 steps.
The paper draws its results, and gives no numbers. It finds that ViTs lose more than ResNets on the
smallest subset, and win on the largest.
"""

from vit_jax.extras.experiments.studies import Cell, Drawing, Score, Stage, Study, transfer

MODELS = ("ViT-b/32", "ViT-B/32", "ViT-L/32", "ViT-L/16", "R50x1", "R152x2")
SUBSETS = {"9M": 9_000_000, "30M": 30_000_000, "90M": 90_000_000, "all": 303_000_000}
SMALL_MODELS = ("ViT-64/7", "ViT-96/7", "ResNet-2", "ResNet-3")
SMALL_SUBSETS = (900, 3000, 9000, 30_000)
SMALL = {
  "duration.steps": 1200,
  "schedule.warmup.steps": 120,
  "evaluate_every.steps": 100,
  "checkpoint.every.steps": 1200,
  "early_stopping.metric": "second/5shot",
}


def cell(recipe: str, settings: dict, model: str, images: int) -> Cell:
  """A model on a subset."""
  stage = Stage(recipe, settings, name=f"{model.replace('/', '_')}_{images}")
  return Cell(f"{model} {images}", stage, {"model": model, "images": images})


def study(cells: list[Cell], probe: str, label: str, seeds: int) -> Study:
  """A curve over the sizes of the subsets for each model."""
  return Study(
    cells=tuple(cells),
    drawing=Drawing(x="images", by="model", log=True, label=label),
    score=Score(f"{probe}/5shot", "best"),
    seeds=seeds,
  )


def small() -> Study:
  """On two CPU cores."""
  compared = [
    cell(f"configs/fashion_halves.py:first,{model}", {**SMALL, "data.train.subset": n}, model, n)
    for model in SMALL_MODELS
    for n in SMALL_SUBSETS
  ]
  return study(compared, "second", "5-shot, new classes of Fashion-MNIST", seeds=3)


def paper() -> Study:
  """On a pod."""
  compared = [
    cell(f"configs/jft_subsets.py:{model},{subset}", transfer.PROBE, model, images)
    for model in MODELS
    for subset, images in SUBSETS.items()
  ]
  return study(compared, "imagenet", "5-shot ImageNet", seeds=1)
