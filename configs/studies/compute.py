"""ViTs, ResNets and hybrids: accuracy after fine-tuning by the cost of pre-training (Figure 5).

  vit-jax study --study=configs/studies/compute.py
  vit-jax study --study=configs/studies/compute.py --scale=paper --plan

small: four ViTs, three ResNets and two hybrids of configs/fashion_halves.py, pre-trained on 30,000
images of five classes of Fashion-MNIST (800 steps) and fine-tuned on 1,000 images of the other five
(200 steps): 9 cells x 3 seeds. Nothing is chosen: all models have the settings of that recipe.
paper: the 18 rows of Table 6, pre-trained on JFT-300M for 7 or 14 epochs and fine-tuned on five
tasks; the fine-tuning on ImageNet is also scored by ReaL's labels: 108 cells. The setting of each
fine-tuning is chosen on its development part; ResNets try the BiT-HyperRule too. JFT-300M is not
public: write your own below, in JFT.

The exaFLOPs along the axis are those of pre-training alone, as in the paper.
The paper finds that ViTs need two to four times less compute than ResNets for the same accuracy,
and that hybrids are a little better than ViTs where compute is small.
"""

from vit_jax.extras.experiments.studies import Cell, Drawing, Paper, Stage, Study, transfer

JFT = {"data.train.source": "tfds:jft", "data.train.split": "train"}
MODELS = {  # the curves of the figure; each model with its epochs
  "ViT": {
    "ViT-B/32": (7,),
    "ViT-B/16": (7,),
    "ViT-L/32": (7,),
    "ViT-L/16": (7, 14),
    "ViT-H/14": (14,),
  },
  "ResNet": {
    "R50x1": (7,),
    "R50x2": (7,),
    "R101x1": (7,),
    "R152x1": (7,),
    "R152x2": (7, 14),
    "R200x3": (14,),
  },
  "hybrid": {
    "R50x1+ViT-B/32": (7,),
    "R50x1+ViT-B/16": (7,),
    "R50x1+ViT-L/32": (7,),
    "R50x1+ViT-L/16": (7, 14),
  },
}
TASKS = {
  "ImageNet": "imagenet",
  "CIFAR-10": "cifar10",
  "CIFAR-100": "cifar100",
  "Pets": "pets",
  "Flowers": "flowers",
}
TABLE = Paper(
  "configs/studies/paper/table6.csv",
  "accuracy",
  "Table 6, pre-trained on JFT-300M, accuracy after fine-tuning",
)
SMALL_MODELS = {
  "ViT": ("ViT-64/7", "ViT-96/7", "ViT-64/4", "ViT-96/4"),
  "ResNet": ("ResNet-2", "ResNet-3", "ResNet-6"),
  "hybrid": ("Hybrid-64", "Hybrid-96"),
}


def small_cell(family: str, model: str) -> Cell:
  """A cell of the small scale."""
  stage = transfer.halves(model, model.replace("/", "_"))
  return Cell(model, stage, {"family": family, "model": model})


def small() -> Study:
  """On two CPU cores."""
  label = "top-1, new classes of Fashion-MNIST"
  drawing = Drawing(x="pretraining_exaflops", by="family", log=True, label=label)
  cells = [small_cell(family, model) for family in SMALL_MODELS for model in SMALL_MODELS[family]]
  return Study(tuple(cells), drawing)


def paper_cells(family: str, model: str, epochs: int) -> list[Cell]:
  """The tasks of a row of Table 6."""
  recipe = transfer.pretraining_of(model, "jft", f"{epochs}")
  before = Stage(recipe, JFT | transfer.PROBE, name=f"{model.replace('/', '_')}_{epochs}")
  factors = {"family": family, "model": model, "epochs": epochs}
  return [
    Cell(f"{model} {epochs} {task}", stage, factors | {"task": task})
    for task, stage in transfer.scored(model, before, TASKS).items()
  ]


def paper() -> Study:
  """On a pod."""
  rows = [
    (family, model, epochs)
    for family, models in MODELS.items()
    for model, lengths in models.items()
    for epochs in lengths
  ]
  drawing = Drawing(x="pretraining_exaflops", by="family", panel="task", log=True, label="top-1")
  cells = [cell for row in rows for cell in paper_cells(*row)]
  return Study(tuple(cells), drawing, seeds=1, paper=TABLE)
