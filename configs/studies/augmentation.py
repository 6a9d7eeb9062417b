"""What each piece of today's recipes is worth, from scratch, by the number of images.

  vit-jax prepare build fashion_mnist
  vit-jax study --study=configs/studies/augmentation.py

small: a ViT of 4 blocks on 1,000, 10,000 and 60,000 training images of Fashion-MNIST: plain, then
with one piece at a time, then with all of them. 24 cells x 3 seeds. Images are flipped, and not
cropped, as in configs/vit_fashion.py:plain. A smaller subset lies inside each larger one, and is
the same for all seeds. Nothing is chosen: each piece has the strength that its source publishes.
There is no larger scale: each piece is in one of the recipes that docs/from-scratch.md lists.
"""

from vit_jax.extras.experiments.studies import Cell, Drawing, Stage, Study

STEPS = {1000: 1000, 10_000: 2000, 60_000: 4000}  # images: steps of 64 images
MODEL = {"model.name": "ViT-Ti/7", "model.width": 64, "model.mlp_dim": 128, "model.heads": 2}
PIECES = {
  "sine-cosine positions": {"model.positions": "sincos2d"},
  "mean pooling": {"model.pool": "gap"},
  "RandAugment": {"data.augment": [{"kind": "rand_augment", "layers": 2, "magnitude": 10.0}]},
  "MixUp": {"objective.mixup": 0.2},
  "CutMix": {"objective.cutmix": 1.0},
  "stochastic depth": {"model.stochastic_depth": 0.1},
}


def cell(name: str, images: int, pieces: dict) -> Cell:
  """Some pieces on a number of images."""
  steps = STEPS[images]
  settings = {
    **MODEL,
    "duration.steps": steps,
    "schedule.warmup.steps": steps // 20,
    "evaluate_every.steps": steps,
    "checkpoint.every.steps": steps,
    "data.train.subset": images,
    **pieces,
  }
  short = name.replace(" ", "_").replace("-", "_").lower()
  return Cell(
    label=f"{name}, {images} images",
    stage=Stage("configs/vit_fashion.py:plain", settings, name=f"{short}_{images}"),
    factors={"recipe": name, "images": images},
  )


def small() -> Study:
  """On two CPU cores."""
  every = {key: value for piece in PIECES.values() for key, value in piece.items()}
  recipes = {"plain": {}} | {f"with {name}": piece for name, piece in PIECES.items()}
  recipes["all"] = every
  cells = [cell(name, images, pieces) for images in STEPS for name, pieces in recipes.items()]
  drawing = Drawing(x="images", by="recipe", log=True, label="top-1, Fashion-MNIST")
  return Study(tuple(cells), drawing)
