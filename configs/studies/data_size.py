"""The size of the pre-training set: ViTs and ResNets on three of them (Figure 3, Table 5).

  vit-jax study --study=configs/studies/data_size.py
  vit-jax study --study=configs/studies/data_size.py --scale=paper --plan

small: two ViTs and a ResNet of configs/fashion_halves.py, pre-trained on 300, 3,000 and 27,000
images of five classes of Fashion-MNIST (800 steps) and fine-tuned on 1,000 images of the other five
(200 steps): 9 cells x 3 seeds. The smaller sets lie inside the larger ones.
paper: five ViTs, R50x1 and R152x2, pre-trained on ImageNet, ImageNet-21k and JFT-300M by the rows
of Table 3 and fine-tuned on five tasks; the fine-tuning on ImageNet is scored by ReaL's labels too:
120 cells. ViT-H/14 is not on ImageNet, as in Table 5. Of two lengths in Table 3 it is 90 epochs of
ImageNet-21k for ViT-L, our choice, and 14 of JFT-300M for ViT-L/16, as in Table 5. The setting of
each fine-tuning is chosen on its development part; ResNets try the BiT-HyperRule too. ImageNet-21k
and JFT-300M are not in TFDS: write your own below, in I21K and JFT.

Decay, dropout and label smoothing of pre-training are chosen for each model and set on images that
are held out of pre-training: 3,000 at the small scale, 1% of ImageNet, 51,200 of ImageNet-21k. The
candidates are the recipe's settings, and these with one change: another decay, another dropout (not
for ResNets, which have none), label smoothing. The paper chooses the three on its smaller sets, and
does not say from what; so nothing is chosen on JFT-300M. The last 1% of ImageNet is never
pre-trained on, because fine-tuning on ImageNet chooses its learning rate there.
The paper finds that large ViTs need the large sets: on ImageNet ViT-L is worse than ViT-B, and
ResNets are better than ViTs; on JFT-300M it is the other way round.
"""

from vit_jax.extras.experiments.studies import (
  Cell,
  Choice,
  Drawing,
  Paper,
  Score,
  Stage,
  Study,
  transfer,
)

TABLE = Paper("configs/studies/paper/table5.csv", "accuracy", "Table 5, accuracy after fine-tuning")
VITS = ("ViT-B/32", "ViT-B/16", "ViT-L/32", "ViT-L/16", "ViT-H/14")
RESNETS = ("R50x1", "R152x2")
I21K = {"data.train.source": "tfds:imagenet21k", "evaluate.val.source": "tfds:imagenet21k"}
JFT = {"data.train.source": "tfds:jft", "data.train.split": "train"}
SETTINGS = {
  "ImageNet": {"data.train.split": "train[:99%]", "evaluate.val.split": "train[99%:]"},
  "ImageNet-21k": I21K
  | {"data.train.split": "train[51200:]", "evaluate.val.split": "train[:51200]"},
  "JFT-300M": JFT | transfer.PROBE,
}
HELD_OUT = {
  "ImageNet": {"data.train.split": "train[:98%]", "evaluate.val.split": "train[98%:99%]"},
  "ImageNet-21k": {
    "data.train.split": "train[102400:]",
    "evaluate.val.split": "train[51200:102400]",
  },
}
IMAGES = {"ImageNet": 1_281_167, "ImageNet-21k": 12_400_000, "JFT-300M": 303_000_000}
# With the sigmoid, 0.1 would add up to 1,092 false classes for each image of ImageNet-21k.
SMOOTHING = {"ImageNet": 0.1, "ImageNet-21k": 1e-4}
LENGTHS = {("ViT-L/16", "JFT-300M"): "14"} | {
  (model, "ImageNet-21k"): "90" for model in ("ViT-L/16", "ViT-L/32", "ViT-H/14")
}
SHORT = {"ImageNet": "i1k", "ImageNet-21k": "i21k", "JFT-300M": "jft"}
OF_RESNETS = {"ImageNet": "imagenet", "ImageNet-21k": "imagenet21k"}

SMALL_VITS, SMALL_RESNETS = ("ViT-64/7", "ViT-96/7"), ("ResNet-3",)
SMALL_SIZES = (300, 3000, 27_000)
SMALL_HELD_OUT = {"evaluate.test.split": "train[90%:]", "evaluate.test.subset": 0}


def candidates(model: str, decay: float, dropout: float, smoothing: float) -> tuple[dict, ...]:
  """The recipe's regularisation, and each of these changes alone."""
  changes = {"optimizer.weight_decay": decay, "loss.label_smoothing": smoothing}
  if model not in RESNETS + SMALL_RESNETS:
    changes["model.dropout"] = dropout
  return ({}, *({key: value} for key, value in changes.items()))


def small_cell(model: str, images: int) -> Cell:
  """A cell of the small scale."""
  name = f"{model.replace('/', '_')}_{images}"
  settings = {"data.train.split": "train[:90%]", "data.train.subset": images}
  choice = Choice(candidates(model, 0.3, 0.1, 0.1), SMALL_HELD_OUT)
  stage = transfer.halves(model, name, settings=settings, choice=choice)
  return Cell(f"{model} {images}", stage, {"model": model, "images": images})


def small() -> Study:
  """On two CPU cores."""
  compared = [
    small_cell(model, images) for model in SMALL_VITS + SMALL_RESNETS for images in SMALL_SIZES
  ]
  label = "top-1, new classes of Fashion-MNIST"
  return Study(tuple(compared), Drawing(x="images", by="model", log=True, label=label))


def recipe(model: str, dataset: str) -> str:
  """The recipe of a pre-training."""
  if model in VITS or dataset == "JFT-300M":
    return transfer.pretraining_of(model, SHORT[dataset], LENGTHS.get((model, dataset), ""))
  return f"configs/resnet.py:{model},{OF_RESNETS[dataset]}"


def pretraining(model: str, dataset: str) -> Stage:
  """A row of Table 3, its regularisation chosen but on JFT-300M."""
  choice = Choice()
  if dataset in HELD_OUT:
    options = candidates(model, 0.1, 0.0, SMOOTHING[dataset])
    choice = Choice(options, HELD_OUT[dataset], score=Score("val/top1"))
  name = f"{model.replace('/', '_')}_{dataset}"
  return Stage(recipe(model, dataset), SETTINGS[dataset], name=name, choice=choice)


def paper_cells(model: str, dataset: str) -> list[Cell]:
  """The tasks of a model after one pre-training."""
  factors = {"pretraining": dataset, "images": IMAGES[dataset], "model": model}
  stages = transfer.scored(model, pretraining(model, dataset), transfer.TABLE_4)
  return [
    Cell(f"{model} {dataset} {task}", stage, factors | {"task": task})
    for task, stage in stages.items()
  ]


def paper() -> Study:
  """On a pod."""
  rows = [(model, dataset) for model in VITS + RESNETS for dataset in SETTINGS]
  rows.remove(("ViT-H/14", "ImageNet"))
  drawing = Drawing(x="images", by="model", panel="task", log=True, label="top-1")
  compared = [one for row in rows for one in paper_cells(*row)]
  return Study(tuple(compared), drawing, seeds=1, paper=TABLE)
