"""VTAB-1k: three models of the paper on 19 tasks, by group (Figure 2, Table 9).

  python tools/study.py --study=configs/studies/vtab.py --scale=paper --plan

paper: ViT-H/14 and ViT-L/16 pre-trained on JFT-300M (14 epochs) and ViT-L/16 on ImageNet-21k (90
epochs), fine-tuned on 1,000 images of each task with the same settings (configs/vtab.py). 57 cells;
top-1 of the test images, in a panel for each group. Name your data in JFT and I21K below.

There is no small scale: it needs the 19 data sets. If you have weights, `python tools/vtab.py` does
the 19 tasks without pre-training, chooses the setting on validation images if asked to, and prints
the mean of each group.
Table 9 has the ViTs' figures, which are beside the results. Of BiT-L (R152x4) the paper prints only
the mean of all tasks, 76.29% (Table 2); Figure 2 draws its groups without figures.
"""

from vit_jax.experiments.studies import Cell, Drawing, Paper, Stage, Study, transfer

TABLE = Paper("configs/studies/paper/table9.csv", "accuracy", "Table 9, VTAB-1k")
JFT = {
  "data.train.source": "tfds:jft",
  "data.train.split": "train",
  "few_shot.imagenet.train.source": "tfds:imagenet2012",
  "few_shot.imagenet.test.source": "tfds:imagenet2012",
}
I21K = {
  "data.train.source": "tfds:imagenet21k",
  "data.train.split": "train[51200:]",
  "data.evaluate.val.source": "tfds:imagenet21k",
  "data.evaluate.val.split": "train[:51200]",
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


def cells(model: str, pretraining: str) -> list[Cell]:
  """The tasks of a model, after one pre-training."""
  dataset, length, settings = BEFORE[model, pretraining]
  name = f"{model.replace('/', '_')}_{dataset}"
  before = Stage(transfer.pretraining_of(model, dataset, length), settings, name)
  found = []
  for group, tasks in GROUPS.items():
    for task in tasks:
      factors = {"task": task, "group": group, "model": model, "pretraining": pretraining}
      weights = f"{model} {pretraining}"
      stage = Stage(f"configs/vtab.py:{model},{task.lower()}", {}, f"{name}_{task}", after=before)
      found.append(Cell(f"{task} {weights}", stage, {**factors, "weights": weights}))
  return found


def paper() -> Study:
  """On a pod."""
  found = [one for model, pretraining in BEFORE for one in cells(model, pretraining)]
  drawing = Drawing(x="task", by="weights", panel="group", label="top-1")
  return Study(tuple(found), drawing, seeds=1, paper=TABLE)
