"""ResNets pre-trained with Adam and with SGD, then fine-tuned (Table 7, Appendix D.1).

  vit-jax study --study=configs/studies/optimizer.py
  vit-jax study --study=configs/studies/optimizer.py --scale=paper --plan

small: two ResNets of configs/fashion_halves.py, pre-trained on 27,000 images of five classes of
Fashion-MNIST (800 steps) and fine-tuned on 1,000 images of the other five (200 steps): 4 cells x 3
seeds. The learning rate of pre-training is the best of four on 3,000 images held out of the same
classes. The four are about three times apart: for Adam up to three times the recipe's 1.5e-3, for
SGD from BiT's upwards (0.03 for 256 images, so 0.0075 for 64), since the run is short. SGD has
BiT's momentum and L2, and its drops on JFT-300M at the same fractions of the run.
paper: R50x1 and R152x2, pre-trained on JFT-300M for 7 epochs and fine-tuned on five tasks: 20
cells. All settings are those of configs/r50x1_jft.py, configs/r152x2_jft.py and
configs/resnet_sgd.py. The setting of each fine-tuning is chosen on its development part, the
BiT-HyperRule among them. JFT-300M is not public: write your own below, in JFT.

The paper finds that Adam is better than SGD on most tasks, and on average.
"""

from vit_jax.extras.experiments.studies import Cell, Choice, Drawing, Paper, Stage, Study, transfer
from vit_jax.recipes import LENGTHS_OF_BIT

JFT = {"data.train.source": "tfds:jft", "data.train.split": "train"}
RECIPES = {"Adam": "configs/{}_jft.py", "SGD": "configs/resnet_sgd.py:{},jft"}
TABLE = Paper(
  "configs/studies/paper/table7.csv",
  "accuracy",
  "Table 7, ResNets pre-trained on JFT-300M, accuracy after fine-tuning",
)
SGD = {
  "optimizer.kind": "sgd",
  "optimizer.weight_decay": 1e-4,
  "optimizer.decay_kind": "coupled",
  "optimizer.clip_norm": 0.0,
  "schedule.decay": "steps",
  "schedule.drops": LENGTHS_OF_BIT["jft"].drops,
}
SMALL = {"Adam": {}, "SGD": SGD}
RATES = {"Adam": (1.5e-4, 5e-4, 1.5e-3, 4.5e-3), "SGD": (0.0075, 0.02, 0.06, 0.2)}
PART = {"data.train.split": "train[:90%]"}
HELD_OUT = {"evaluate.test.split": "train[90%:]", "evaluate.test.subset": 0}


def cell(task: str, model: str, optimizer: str, stage: Stage) -> Cell:
  """A fine-tuning after pre-training with an optimizer."""
  factors = {"task": task, "model": model, "optimizer": optimizer}
  return Cell(f"{model} {optimizer} {task}", stage, factors)


def small_cell(model: str, optimizer: str) -> Cell:
  """A cell of the small scale."""
  rates = tuple({"schedule.learning_rate": rate} for rate in RATES[optimizer])
  name = f"{model}_{optimizer}"
  settings = PART | SMALL[optimizer]
  stage = transfer.halves(model, name, settings=settings, choice=Choice(rates, HELD_OUT))
  return cell("new classes", model, optimizer, stage)


def small() -> Study:
  """On two CPU cores."""
  compared = [small_cell(model, one) for model in ("ResNet-2", "ResNet-3") for one in SMALL]
  label = "top-1, new classes of Fashion-MNIST"
  return Study(tuple(compared), Drawing(x="model", by="optimizer", label=label))


def paper_cells(model: str, optimizer: str) -> list[Cell]:
  """The fine-tunings after one pre-training."""
  name = model.lower() if optimizer == "Adam" else model
  before = Stage(RECIPES[optimizer].format(name), JFT | transfer.PROBE, name=f"{model}_{optimizer}")
  return [
    cell(task, model, optimizer, transfer.fine_tuning(model, key, before))
    for task, key in transfer.TABLE_4.items()
  ]


def paper() -> Study:
  """On a pod."""
  compared = [
    one for model in ("R50x1", "R152x2") for by in RECIPES for one in paper_cells(model, by)
  ]
  drawing = Drawing(x="task", by="optimizer", panel="model", label="top-1")
  return Study(tuple(compared), drawing, seeds=1, paper=TABLE, means=(("task",),))
