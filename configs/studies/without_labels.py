"""Does pre-training without labels help where labels are few? MAE, DINO and masked patches.

  vit-jax prepare build fashion_mnist
  vit-jax study --study=configs/studies/without_labels.py

small: a ViT of 4 blocks is pre-trained on the 60,000 training images of Fashion-MNIST without their
labels, then scored by its 20 nearest neighbours and by a linear probe, and fine-tuned, with about
100, 1,000 and 10,000 labels. Instead of pre-training ("none"), the probes get the initial weights,
and training from scratch is as long as pre-training and fine-tuning together: every start sees as
many images. "all" is trained from scratch with all labels, as long. 37 cells x 3 seeds, 51 runs.

The features are the mean of the patches, which all objectives train. The neighbours and
fine-tuning have a random subset of the training images, the same for all seeds; the linear probe
(`few_shot`, in closed form) has 10, 100 and 1,000 images of each class, also the same.
Scores are of 3,000 test images. DINO's crops are two of 28 pixels and two of 14, a quarter of the
patches; its teacher's temperature stays 0.04. Nothing is chosen here: pre-training has the rate of
configs/masked_fashion.py, and training with labels those that four candidates had on held-out
images in another study of masked patches (0.001 with 100 labels, else 0.003).
There is no larger scale.
"""

from vit_jax.extras.experiments.studies import Cell, Drawing, Score, Stage, Study

MODEL = {
  "model.name": "ViT-Ti/7",
  "model.width": 64,
  "model.mlp_dim": 128,
  "model.heads": 2,
  "model.pool": "gap",
}
SPEED = {"data.threads": 1, "report": False}  # for one core
STEPS = 2000  # without labels, of 64 images
LABELLED = 500  # steps with labels
SUBSETS = (100, 1000, 10_000)  # labels
RATES = {100: 1e-3, 1000: 3e-3, 10_000: 3e-3, 60_000: 3e-3}  # labels: learning rate
SCORED = "test[:30%]"
OBJECTIVES = {
  "masked patches": {"objective.kind": "masked_patches"},
  "MAE": {
    "objective.kind": "mae",
    "objective.decoder_depth": 2,
    "objective.decoder_width": 64,
    "objective.decoder_heads": 4,
  },
  "DINO": {
    "objective.kind": "dino",
    "objective.local_crops": 2,
    "objective.local_side": 14,
    "objective.local_area": (0.2, 0.4),
    "objective.head_hidden": 128,
    "objective.head_bottleneck": 64,
    "objective.head_outputs": 1024,
    "objective.teacher_temperature": 0.04,
    "objective.temperature_warmup": 0.0,
    "objective.frozen_prototypes": 0.02,
    "data.crop_area": (0.4, 1.0),
    "data.crop_aspect": (3 / 4, 4 / 3),
    "data.crop_rule": "random_resized",
    "optimizer.weight_decay": 0.04,
    "optimizer.ema": 0.98,
    "optimizer.end_ema": 1.0,
    "optimizer.ema_corrected": False,
  },
}


def probes() -> dict:
  """Evaluations of the features, after the last step."""
  settings = {
    "evaluate.held_out.source": "",
    "evaluate.neighbours.train.source": "",
    "evaluate.neighbours.test.source": "",
  }
  for labels in SUBSETS:
    settings |= {
      f"evaluate.labels_{labels}.kind": "nearest_neighbours",
      **features(f"evaluate.labels_{labels}"),
      f"evaluate.labels_{labels}.train.subset": labels,
    }
  return settings | {
    "evaluate.linear.kind": "few_shot",
    "evaluate.linear.shots": (10, 100, 1000),
    "evaluate.linear.seeds": 1,
    "evaluate.linear.resize": 1.0,
    **features("evaluate.linear"),
  }


def features(evaluation: str) -> dict:
  """The images of an evaluation of features."""
  return {
    f"{evaluation}.train.source": "tfds:fashion_mnist",
    f"{evaluation}.train.split": "train",
    f"{evaluation}.test.source": "tfds:fashion_mnist",
    f"{evaluation}.test.split": SCORED,
    f"{evaluation}.representation": "pre_logits",
  }


def pretraining(start: str) -> Stage:
  """A run without labels; "none" keeps the initial weights."""
  settings = {
    **MODEL,
    **SPEED,
    **probes(),
    "duration.steps": STEPS,
    "schedule.warmup.steps": STEPS // 10,
    "evaluate_every.steps": STEPS,
    "checkpoint.every.steps": STEPS,
    "data.train.split": "train",
  }
  if start == "none":
    settings |= {
      "duration.steps": 1,
      "schedule.warmup.steps": 0,
      "schedule.learning_rate": 1e-12,
    }
  settings |= OBJECTIVES.get(start, {})
  name = f"pretraining_{start}".replace(" ", "_")
  return Stage("configs/masked_fashion.py", settings, name=name)


def training(start: str, labels: int) -> Stage:
  """A run with labels: from scratch or after a pre-training."""
  after = None
  steps = STEPS + LABELLED
  if start in OBJECTIVES:
    after = pretraining(start)
    steps = LABELLED
  settings = {
    **MODEL,
    **SPEED,
    "duration.steps": steps,
    "schedule.warmup.steps": steps // 10,
    "schedule.learning_rate": RATES[labels],
    "evaluate_every.steps": steps,
    "checkpoint.every.steps": steps,
    "optimizer.ema": 0.0,
    "data.train.split": "train",
    "evaluate.test.split": SCORED,
    "new_head": after is not None,
  }
  if labels < 60_000:
    settings["data.train.subset"] = labels
  name = f"{start}_{labels}".replace(" ", "_")
  return Stage("configs/vit_fashion.py:plain", settings, name, after)


def cell(start: str, method: str, labels: int, stage: Stage, metric: str) -> Cell:
  """One score."""
  factors = {"start": start, "method": method, "labels": labels}
  return Cell(f"{start}, {method}, {labels} labels", stage, factors, Score(metric))


def cells(start: str, labels: int) -> list[Cell]:
  """The scores of a start with a number of labels."""
  before = pretraining(start)
  return [
    cell(start, "neighbours", labels, before, f"labels_{labels}/20nn"),
    cell(start, "linear probe", labels, before, f"linear/{labels // 10}shot"),
    cell(start, "training", labels, training(start, labels), "test/top1"),
  ]


def small() -> Study:
  """On one CPU core."""
  starts = (*OBJECTIVES, "none")
  every = [one for labels in SUBSETS for start in starts for one in cells(start, labels)]
  every.sort(key=lambda one: one.factors["start"] == "none" and one.factors["method"] != "training")
  every.append(cell("none", "training", 60_000, training("none", 60_000), "test/top1"))
  drawing = Drawing(x="labels", by="start", panel="method", log=True, label="top-1, Fashion-MNIST")
  return Study(tuple(every), drawing)
