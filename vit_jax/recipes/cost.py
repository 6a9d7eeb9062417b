"""The cost of models and recipes, from formulas: parameters, multiply-adds and training FLOPs.

This module imports JAX; the other modules of this package do not.
"""

import contextlib
import dataclasses

import jax

from vit_jax import config, models
from vit_jax.config import recipe_file
from vit_jax.config.model import USUAL, our_name
from vit_jax.learning import objective as objectives
from vit_jax.learning import optim
from vit_jax.learning.optimizers.adam import Adam
from vit_jax.models import vit_costs
from vit_jax.recipes.pretraining import DATASETS, examples_of
from vit_jax.registry import PARAMETRIZATIONS

# Table 6 of the paper: exaFLOPs by model and epochs.
PAPER = {
  ("ViT-B/32", 7): 55,
  ("ViT-B/16", 7): 224,
  ("ViT-L/32", 7): 196,
  ("ViT-L/16", 7): 783,
  ("ViT-L/16", 14): 1567,
  ("ViT-H/14", 14): 4262,
  ("R50x1", 7): 50,
  ("R50x2", 7): 199,
  ("R101x1", 7): 96,
  ("R152x1", 7): 141,
  ("R152x2", 7): 563,
  ("R152x2", 14): 1126,
  ("R200x3", 14): 3306,
  ("R50x1+ViT-B/32", 7): 106,
  ("R50x1+ViT-B/16", 7): 274,
  ("R50x1+ViT-L/32", 7): 246,
  ("R50x1+ViT-L/16", 7): 859,
  ("R50x1+ViT-L/16", 14): 1668,
}
EPOCHS = 7  # in most rows of Table 6

JFT = DATASETS["jft"]

# Settings that change a model from the one that its name describes.
SHAPE = (
  "patch",
  "depth",
  "width",
  "mlp_dim",
  "heads",
  "stages",
  "pool",
  "positions",
  "position_place",
  "registers",
  "qk_norm",
  "layer_scale",
)


def pretraining(name: str, epochs: float = EPOCHS) -> config.Config:
  """The pre-training that Table 6 lists: `name` on JFT-300M at 224 px.

  Raises:
    ConfigError: there is no such model.
  """
  model = config.Model(name=our_name(name), num_classes=JFT.num_classes)
  data = config.Data(dataset="jft", image_size=224)
  run = config.Config(
    duration=config.Duration(epochs=epochs),
    loss=config.Loss(kind="sigmoid"),
    model=model,
    optimizer=Adam(ema=0.0),
    data=data,
  )
  run = recipe_file.as_elsewhere(run, name)
  with models.named_as_settings():
    options = _of_pretraining(models.configured(run.model))
  return dataclasses.replace(run, model=dataclasses.replace(run.model, **options))


def _of_pretraining(module: models.Network) -> dict:
  """The representation layer of the paper, and a scan, which is fast to trace, where they suit."""
  options = {}
  if hasattr(module, "representation_layer"):
    options["representation_layer"] = module.pool != "distilled"
  if hasattr(module, "scan"):
    options["scan"] = not (module.global_blocks or module.kv_heads_from)
  return options


def cost(run: config.Config, examples: int | None) -> dict:
  """One row of the table of costs.

  Args:
    run: the cost depends on its model, image size, duration and batch size.
    examples: training images in an epoch; None: those of the dataset that the recipe names, if it
      names one.
  """
  of_example = training_flops(run)
  images = training_images(run, examples)
  exaflops = None
  if None not in (of_example, images):
    exaflops = of_example * images / 1e18
  paper = paper_exaflops(run, of_example, images)
  shapes = objectives.shapes(run)
  params = vit_costs.by_part(shapes)
  outside = ("head", "pre_logits", objectives.OBJECTIVE_PARAMS, *PARAMETRIZATIONS)
  return dict(
    model=label(run.model),
    epochs=run.duration.epochs or None,
    params=sum(params.values()),
    body_params=sum(count for name, count in params.items() if name not in outside),
    checkpoint_bytes=checkpoint_bytes(run, shapes),
    gmacs=forward_macs(run) / 1e9,
    training_gflops=of_example and of_example / 1e9,
    exaflops=exaflops,
    paper_exaflops=paper,
    ratio=exaflops / paper if paper else None,
  )


def checkpoint_bytes(run: config.Config, params) -> int:
  """Bytes of a checkpoint's arrays: parameters, moments, average, and the objective's own state.

  Args:
    run: the settings.
    params: all parameters, as shapes.
  """
  settings = run.optimizer
  objective = objectives.of_config(run)
  trained = optim.partition(params, objective.trainable(settings.trainable))
  state = jax.eval_shape(optim.make(settings).init, trained)
  average = trained if settings.averages else None
  extra = jax.eval_shape(objective.begin, params)
  arrays = jax.tree.leaves((params, state, average, extra))
  return sum(x.size * x.dtype.itemsize for x in arrays)


def parameters(run: config.Config) -> dict[str, int]:
  """The number of parameters of each part of the model, for a new run; computes no arrays."""
  return vit_costs.by_part(objectives.shapes(run))


def forward_macs(run: config.Config) -> int:
  """Multiply-adds of the model's forward pass for one image, without a head that is not trained."""
  model = models.configured(run.model)
  macs = model.macs(*config.sides(run.data.image_size))
  if not run.objective.trains_head:
    macs -= model.feature_width() * model.num_classes
  return macs


def training_flops(run: config.Config) -> int | None:
  """FLOPs of an example in training, with all its views and what the objective computes besides.

  None if only a part of the model is trained: the formula counts all gradients.
  """
  objective = objectives.of_config(run)
  if not objectives.trains_all(objective, run.optimizer):
    return None
  return objective.training_flops(run.data.image_size)


def training_images(run: config.Config, examples: int | None) -> float | None:
  """Images seen in the whole training, counted with repetitions; None if not known."""
  if not run.duration.epochs:
    return run.duration.examples + run.duration.steps * run.batch_size
  examples = examples or examples_of(run)
  if examples is None:
    return None
  return run.duration.epochs * examples


def paper_exaflops(run: config.Config, of_example: int | None, images: float | None) -> int | None:
  """Table 6's number if this run computes as much as that row; else None.

  Args:
    run: the settings.
    of_example: its FLOPs of an example in training; None: unknown.
    images: that it sees; None: unknown.
  """
  row = (run.model.name, run.duration.epochs)
  if row not in PAPER:
    return None
  its = pretraining(*row)
  if (of_example, images) != (training_flops(its), training_images(its, JFT.examples)):
    return None
  return PAPER[row]


def label(model: config.Model) -> str:
  """The model's name, followed by the settings that change its shape; all, if no model has it."""
  named = {}
  with contextlib.suppress(ValueError):
    named = USUAL | models.fields_of(model.name)
  usual = {key: (named.get(key, config.AUTO), config.AUTO) for key in SHAPE}
  changes = {key: x for key in SHAPE if (x := getattr(model, key)) not in usual[key]}
  return " ".join([model.name, *(f"{key}={value}" for key, value in changes.items())])
