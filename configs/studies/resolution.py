"""Fine-tuning at 1, 1.5 and 2 times the resolution of pre-training (Section 3.2).

  vit-jax study --study=configs/studies/resolution.py
  vit-jax study --study=configs/studies/resolution.py --scale=paper --plan

The position embeddings of pre-training are interpolated, as in the paper, or new. At the resolution
of pre-training, interpolated ones are those of pre-training.

small: a ViT of 4 blocks is pre-trained on the classes 0 to 4 of Fashion-MNIST, reduced to 16 px
(1,400 steps), and fine-tuned on 1,000 images of the classes 5 to 9 at 16, 24 and 32 px (200 steps).
6 cells x 3 seeds; top-1 of the test images of the classes 5 to 9. docs/data.md has the commands
that make the two halves, fashion_first and fashion_second.
paper: ViT-B/16 is pre-trained on ImageNet at 224 px (300 epochs, Table 3), and fine-tuned on
ImageNet at 224, 336 and 448 px (20,000 steps, Table 4). Table 5 has 77.91% for 384 px.

The learning rate of each cell is chosen from the paper's grid for ImageNet (Table 4), on a part of
the training images that the trials leave out: 10%, at the paper's scale 1%. At that scale the
pre-training, which has the same images, leaves them out too.
"""

from vit_jax.extras.experiments.studies import Cell, Choice, Drawing, Stage, Study

POSITIONS = {"interpolated": False, "new": True}  # config.new_positions
RATES = tuple({"schedule.learning_rate": rate} for rate in (0.003, 0.01, 0.03, 0.06))
SMALL = {
  "batch_size": 64,
  "model.depth": 4,
  "model.width": 64,
  "model.mlp_dim": 128,
  "model.heads": 2,
  "model.num_classes": 5,
  "data.crop_area": (1.0, 1.0),
  "data.crop_aspect": (1.0, 1.0),
}


def half(name: str) -> dict:
  """The training and test images of half of the classes of Fashion-MNIST."""
  sources = ("data.train.source", "evaluate.test.source")
  return {"evaluate.test.split": "test", **dict.fromkeys(sources, f"tfds:fashion_{name}")}


def lasting(steps: int) -> dict:
  """A length with a warm-up of a tenth, and one evaluation and one checkpoint at its end."""
  return {
    "duration.steps": steps,
    "schedule.warmup.steps": steps // 10,
    "evaluate_every.steps": steps,
    "checkpoint.every.steps": steps,
  }


def study(before: Stage, recipe: str, settings: dict, held_out: str, pixels: tuple) -> Study:
  """Fine-tunings after one pre-training.

  Args:
    before: the pre-training.
    recipe: of fine-tuning.
    settings: of fine-tuning.
    held_out: where the training images are cut for the trials, such as 99%.
    pixels: sides of the images.
  """
  parts = {
    "data.train.split": f"train[:{held_out}]",
    "evaluate.test.source": settings["data.train.source"],
    "evaluate.test.split": f"train[{held_out}:]",
  }
  compared = []
  for positions, new in POSITIONS.items():
    for side in pixels:
      changes = settings | {"data.image_size": side, "new_positions": new}
      name = f"{positions}_{side}px"
      stage = Stage(recipe, changes, name=name, after=before, choice=Choice(RATES, parts))
      label = f"{positions} {side} px"
      compared.append(Cell(label, stage, {"positions": positions, "pixels": side}))
  return Study(tuple(compared), Drawing(x="pixels", by="positions", label="top-1"))


def small() -> Study:
  """On two CPU cores."""
  first = {**SMALL, **half("first"), **lasting(1400), "data.image_size": 16}
  second = {**SMALL, **half("second"), **lasting(200), "data.train.subset": 1000}
  before = Stage(
    "configs/vit_fashion.py:plain", {**first, "model.name": "ViT-Ti/4"}, name="pretraining"
  )
  recipe = "configs/finetune.py:ViT-Ti/4,cifar10,inception"
  return study(before, recipe, second, held_out="90%", pixels=(16, 24, 32))


def paper() -> Study:
  """On a pod."""
  before = Stage("configs/vit_b16_i1k.py", {"data.train.split": "train[:99%]"}, name="pretraining")
  settings = {"data.train.source": "tfds:imagenet2012"}
  recipe = "configs/finetune.py:ViT-B/16,imagenet"
  return study(before, recipe, settings, held_out="99%", pixels=(224, 336, 448))
