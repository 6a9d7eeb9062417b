"""Fine-tuning on new classes against training from scratch, at two resolutions (Section 3.2).

  vit-jax study --study=configs/studies/transfer.py

small: a ViT of 4 blocks is pre-trained on the classes 0 to 4 of Fashion-MNIST (1,400 steps), and
fine-tuned on 1,000 images of the classes 5 to 9 (200 steps of 64 images), at 28 and at 56 pixels.
Beside it the same model is trained from scratch on these images, for as many steps. Every run is
scored with its moving average and with the parameters of its last step: 8 cells x 3 seeds.
docs/data.md has the commands that make the two halves, fashion_first and fashion_second.

Nothing is chosen: the learning rate of fine-tuning is from the paper's grid, and training from
scratch has the recipe of pre-training, since SGD is meant for parameters that are already good.
There is no larger scale: the paper's transfers are the studies of its tables.
"""

from vit_jax.extras.experiments.studies import Cell, Drawing, Stage, Study

SHAPE = {
  "batch_size": 64,
  "model.depth": 4,
  "model.width": 96,
  "model.mlp_dim": 192,
  "model.heads": 3,
  "model.num_classes": 5,
  "data.crop_area": (1.0, 1.0),
  "data.crop_aspect": (1.0, 1.0),
}


def images(half: str) -> dict:
  """The training and the test images of half of the classes."""
  return {
    "data.train.source": f"tfds:fashion_{half}",
    "data.train.split": "train",
    "evaluate.test.source": f"tfds:fashion_{half}",
    "evaluate.test.split": "test",
  }


def lasting(steps: int, warmup: int) -> dict:
  """A length, with one evaluation and one checkpoint at its end."""
  return {
    "duration.steps": steps,
    "schedule.warmup.steps": warmup,
    "evaluate_every.steps": steps,
    "checkpoint.every.steps": steps,
  }


PRETRAINING = Stage(
  "configs/vit_fashion.py:plain", SHAPE | images("first") | lasting(1400, 140), name="pretraining"
)
FINE_TUNING = {
  "schedule.learning_rate": 0.03,
  "model.compute_dtype": "float32",
}


def trained(start: str, pixels: int) -> Stage:
  """A run on the second half of the classes."""
  common = {
    **SHAPE,
    **images("second"),
    "data.train.subset": 1000,
    "data.image_size": pixels,
    "optimizer.ema": 0.98,
  }
  if start == "scratch":
    return Stage(
      "configs/vit_fashion.py:plain", common | lasting(200, 20), name=f"scratch_{pixels}px"
    )
  return Stage(
    "configs/finetune.py:ViT-Ti/4,cifar10,inception",
    common | lasting(200, 0) | FINE_TUNING,
    name=f"tuned_{pixels}px",
    after=PRETRAINING,
  )


def cells(start: str, pixels: int) -> list[Cell]:
  """One run, scored with its moving average and with its last parameters."""
  stage = trained(start, pixels)
  last = Stage(
    stage.recipe,
    stage.settings,
    name=f"last_of_{stage.name}",
    after=stage,
    mode="evaluate",
    average=False,
  )
  return [
    Cell(
      f"{start} {pixels} px, {weights}",
      stage_scored,
      {"weights": f"{start}, {weights}", "pixels": pixels},
    )
    for weights, stage_scored in [("average", stage), ("last step", last)]
  ]


def small() -> Study:
  """On two CPU cores."""
  starts = ("fine-tuned", "scratch")
  compared = [cell for start in starts for pixels in (28, 56) for cell in cells(start, pixels)]
  drawing = Drawing(x="pixels", by="weights", label="top-1, new classes of Fashion-MNIST")
  return Study(cells=tuple(compared), drawing=drawing)
