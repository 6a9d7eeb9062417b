"""Axial models against their counterparts: few-shot accuracy, FLOPs and time (Figure 13, D.6).

  vit-jax study --study=configs/studies/axial.py
  vit-jax study --study=configs/studies/axial.py --scale=paper --plan

An axial ViT replaces each block by attention and MLP along the rows, and then along the columns. An
axial ResNet replaces each 3 x 3 convolution by attention along rows and columns.

small: ViTs of width 64 with patches of 7, 4 and 2 pixels and a ResNet of 3 units, 400 steps on the
classes 0 to 4 of Fashion-MNIST, by configs/fashion_halves.py; 5-shot accuracy on the classes 5 to
9. 8 cells x 3 seeds.
paper: ViT-B/32, ViT-B/16 and ResNet-50 on JFT-300M, 7 epochs; 5-shot ImageNet. Give the data, which
is not public: --config.data.train.source=..., as for configs/vit_b16_jft.py.

Nothing is chosen: a model and its counterpart have the settings of one recipe. The second panel
shows the seconds of the training steps: for that, start one run at a time on an idle machine.
vit-jax speed measures inference. The small axial ResNet has 4 heads, so that a head of its first
stage has 8 dimensions, as in Axial-R50.
The paper draws 5-shot accuracy against FLOPs and inference time, and gives no numbers. It finds
that axial ViTs are more accurate than ViTs and need more computation, and that its Axial-ResNet-50
is very slow on TPUs.
"""

from vit_jax.extras.experiments.studies import Cell, Drawing, Score, Stage, Study, transfer

HALVES = "configs/fashion_halves.py:first"
SMALL = {
  "duration.steps": 400,
  "schedule.warmup.steps": 40,
  "evaluate_every.steps": 400,
  "checkpoint.every.steps": 400,
}


def pair(kind: str, recipe: str, settings: dict, model: str, axial: str, **own) -> list[Cell]:
  """A model and its axial counterpart, which has `own` settings of the model too."""
  return [
    cell(recipe, {**settings, "model.name": model}, kind),
    cell(
      recipe,
      {**settings, "model.name": axial, **{f"model.{key}": value for key, value in own.items()}},
      f"Axial-{kind}",
    ),
  ]


def cell(recipe: str, settings: dict, kind: str) -> Cell:
  """One model, on the curve of its kind."""
  model = settings["model.name"]
  return Cell(model, Stage(recipe, settings, model.replace("/", "_")), dict(kind=kind, model=model))


def study(cells: list[Cell], score: str, label: str, seeds: int) -> Study:
  """Both panels of Figure 13."""
  drawing = Drawing(x=("exaflops", "seconds"), by="kind", log=True, label=label)
  return Study(tuple(cells), drawing, Score(score), seeds)


def small() -> Study:
  """On two CPU cores."""
  cells = []
  for patch in (7, 4, 2):
    cells += pair("ViT", f"{HALVES},ViT-64/4", SMALL, f"ViT-Ti/{patch}", f"Axial-ViT-Ti/{patch}")
  cells += pair("ResNet", f"{HALVES},ResNet-3", SMALL, "R26x1", "Axial-R26", heads=4)
  return study(cells, "second/5shot", "5-shot, other classes of Fashion-MNIST", seeds=3)


def paper() -> Study:
  """On a pod."""
  cells = [
    *pair("ViT", "configs/vit_b32_jft.py", transfer.PROBE, "ViT-B/32", "Axial-ViT-B/32"),
    *pair("ViT", "configs/vit_b16_jft.py", transfer.PROBE, "ViT-B/16", "Axial-ViT-B/16"),
    *pair("ResNet", "configs/r50x1_jft.py", transfer.PROBE, "R50x1", "Axial-R50"),
  ]
  return study(cells, "imagenet/5shot", "5-shot ImageNet", seeds=1)
