"""VTAB-1k: models on tasks of 1,000 images, by group (Figure 2, Table 9).

  vit-jax study --study=configs/studies/vtab.py
  vit-jax study --study=configs/studies/vtab.py --scale=paper --plan

small: two ViTs and a ResNet, pre-trained on five classes of Fashion-MNIST and fine-tuned on two
tasks with the same settings (configs/fashion_halves.py, no flips): 1,000 images of the other five
classes, natural, and 1,000 handwritten digits of scikit-learn, specialized. 6 cells x 3 seeds.
Images with labels for a structured task are not at hand.
paper: ViT-H/14 and ViT-L/16 pre-trained on JFT-300M (14 epochs) and ViT-L/16 on ImageNet-21k (90
epochs), fine-tuned on 1,000 images of each task with the same settings (configs/vtab.py). 57 cells;
top-1 of the test images, in a panel for each group. Name your data in JFT and I21K below.

Nothing is chosen. If you have weights, `vit-jax vtab` does the 19 tasks without
pre-training, chooses the setting on validation images if asked to, and prints the mean of each
group.
Means of each group and of all tasks are tables of their own. Table 9 has the ViTs' numbers, which
are beside the results. Of BiT-L (R152x4) the paper prints only the mean of all tasks, 76.29% (Table
2); Figure 2 draws its groups without numbers.
"""

from vit_jax.extras.experiments.studies import Cell, Drawing, Paper, Stage, Study, transfer

TABLE = Paper(
  "configs/studies/paper/table9.csv",
  "accuracy",
  "Table 9, VTAB-1k; of BiT-L (R152x4) Table 2 has 0.7629, the mean over all tasks",
)
MEANS = (("task",), ("task", "group"))  # of each group, and of all tasks
JFT = {
  "data.train.source": "tfds:jft",
  "data.train.split": "train",
  "evaluate.imagenet.train.source": "tfds:imagenet2012",
  "evaluate.imagenet.test.source": "tfds:imagenet2012",
}
I21K = {
  "data.train.source": "tfds:imagenet21k",
  "data.train.split": "train[51200:]",
  "evaluate.val.source": "tfds:imagenet21k",
  "evaluate.val.split": "train[:51200]",
}
BEFORE = {  # model and data: the recipe, its length, and its settings
  ("ViT-H/14", "JFT-300M"): ("jft", "", JFT),
  ("ViT-L/16", "JFT-300M"): ("jft", "14", JFT),
  ("ViT-L/16", "ImageNet-21k"): ("i21k", "90", I21K),
}
GROUPS = {
  "natural": ("Caltech101", "CIFAR-100", "DTD", "Flowers102", "Pets", "Sun397", "SVHN"),
  "specialized": ("Camelyon", "EuroSAT", "Resisc45", "Retinopathy"),
  "structured": (
    *("Clevr-Count", "Clevr-Dist", "DMLab", "dSpr-Loc", "dSpr-Ori", "KITTI-Dist"),
    *("sNORB-Azim", "sNORB-Elev"),
  ),
}

SMALL_MODELS = ("ViT-96/7", "ViT-96/4", "ResNet-3")
SMALL_TASKS = {  # with their groups and settings
  "Fashion-MNIST": ("natural", {}),
  "digits": (
    "specialized",
    {
      "model.num_classes": 10,
      "data.train.source": "digits",
      "evaluate.test.source": "digits",
    },
  ),
}


def small_cells(model: str) -> list[Cell]:
  """The tasks of a small model."""
  name = model.replace("/", "_")
  before = Stage(f"configs/fashion_halves.py:first,{model}", name=name)
  compared = []
  for task, (group, settings) in SMALL_TASKS.items():
    recipe = f"configs/fashion_halves.py:second,{model}"
    stage = Stage(recipe, settings | {"data.flip": False}, f"{name}_{task}", after=before)
    compared.append(Cell(f"{task} {model}", stage, {"task": task, "group": group, "model": model}))
  return compared


def small() -> Study:
  """On two CPU cores."""
  compared = [one for model in SMALL_MODELS for one in small_cells(model)]
  drawing = Drawing(x="task", by="model", panel="group", label="top-1")
  return Study(tuple(compared), drawing, means=MEANS)


def cells(model: str, pretraining: str) -> list[Cell]:
  """The tasks of a model, after one pre-training."""
  dataset, length, settings = BEFORE[model, pretraining]
  name = f"{model.replace('/', '_')}_{dataset}"
  before = Stage(transfer.pretraining_of(model, dataset, length), settings, name)
  compared = []
  for group, tasks in GROUPS.items():
    for task in tasks:
      factors = {"task": task, "group": group, "model": model, "pretraining": pretraining}
      weights = f"{model} {pretraining}"
      stage = Stage(f"configs/vtab.py:{model},{task.lower()}", {}, f"{name}_{task}", after=before)
      compared.append(Cell(f"{task} {weights}", stage, {**factors, "weights": weights}))
  return compared


def paper() -> Study:
  """On a pod."""
  compared = [one for model, pretraining in BEFORE for one in cells(model, pretraining)]
  drawing = Drawing(x="task", by="weights", panel="group", label="top-1")
  return Study(tuple(compared), drawing, seeds=1, paper=TABLE, means=MEANS)
