"""Does pre-training without labels help where labels are few? (Section 4.6, Appendix B.1.2).

  vit-jax prepare build fashion_mnist
  vit-jax study --study=configs/studies/masked.py

small: a ViT of 4 blocks is pre-trained on all training images of Fashion-MNIST without their labels
(configs/masked_fashion.py, 2,000 steps of 64 images) and fine-tuned on 100, 1,000 and 10,000
labelled ones (configs/vit_fashion.py:plain). Beside it the same model is trained from scratch, for
as many labelled steps and for as many steps in all. With 1,000 labels the three targets and two
rates of corruption are compared. 14 cells x 3 seeds.

The labelled images are a random subset of the first nine tenths of the training images, the same
for all seeds. The last tenth chooses the learning rate of each cell; pre-training has seen its
images, not its labels.
There is no larger scale: the paper's pre-training is configs/masked_vit_b16_jft.py.
"""

from vit_jax.extras.experiments.studies import Cell, Choice, Drawing, Stage, Study

MODEL = {"model.name": "ViT-Ti/7", "model.width": 64, "model.mlp_dim": 128, "model.heads": 2}
STEPS = 2000  # without labels
LABELLED = {100: 300, 1000: 500, 10_000: 1500}  # labels: steps
COMPARED = 1000  # labels with which targets and rates are compared
KINDS = tuple(
  (target, rate) for target in ("mean_color", "down4", "pixels") for rate in (0.5, 0.15)
)
RATES = tuple({"schedule.learning_rate": rate} for rate in (3e-4, 1e-3, 3e-3, 1e-2))
HELD_OUT = {"evaluate.test.split": "train[90%:]"}
SEEN = {"data.allow_overlap": True}  # pre-training has seen the held-out images, without labels


def pretraining(target: str, rate: float) -> Stage:
  """Masked patch prediction; the test images tell how well it predicts."""
  settings = {
    **MODEL,
    "duration.steps": STEPS,
    "schedule.warmup.steps": STEPS // 10,
    "evaluate_every.steps": STEPS // 2,
    "checkpoint.every.steps": STEPS // 4,
    "data.train.split": "train",
    "evaluate.held_out.split": "test",
    "evaluate.neighbours.train.source": "",
    "evaluate.neighbours.test.source": "",
    "objective.target": target,
    "objective.rate": rate,
  }
  return Stage("configs/masked_fashion.py", settings, name=f"pretraining_{target}_{rate:g}")


def training(name: str, labels: int, steps: int, after: Stage | None = None) -> Stage:
  """A run with labels, from scratch or after a pre-training."""
  settings = {
    **MODEL,
    "duration.steps": steps,
    "schedule.warmup.steps": steps // 10,
    "evaluate_every.steps": steps,
    "checkpoint.every.steps": steps,
    "optimizer.ema": 0.0,
    "data.train.split": "train[:90%]",
    "data.train.subset": labels,
    "new_head": after is not None,
  }
  choice = Choice(RATES, HELD_OUT | (SEEN if after else {}))
  return Stage("configs/vit_fashion.py:plain", settings, f"{name}_{labels}", after, choice)


def cell(start: str, labels: int, stage: Stage) -> Cell:
  """A start with a number of labels."""
  return Cell(f"{start}, {labels} labels", stage, {"start": start, "labels": labels})


def after_masked(target: str, rate: float, labels: int) -> Cell:
  """Fine-tuning after masked patch prediction."""
  name, before = f"{target}_{rate:g}", pretraining(target, rate)
  stage = training(name, labels, LABELLED[labels], after=before)
  return cell(f"after {target}, {rate:.0%} corrupted", labels, stage)


def from_scratch(labels: int) -> list[Cell]:
  """As many labelled steps as after masked patch prediction, and as many in all."""
  steps = LABELLED[labels]
  return [
    cell("scratch, labelled steps", labels, training("scratch", labels, steps)),
    cell("scratch, steps in all", labels, training("longer", labels, STEPS + steps)),
  ]


def small() -> Study:
  """On two CPU cores."""
  compared = []
  for labels in LABELLED:
    compared += [after_masked(*KINDS[0], labels), *from_scratch(labels)]
  compared += [after_masked(*kind, COMPARED) for kind in KINDS[1:]]
  drawing = Drawing(x="labels", by="start", log=True, label="top-1, Fashion-MNIST")
  return Study(tuple(compared), drawing)
