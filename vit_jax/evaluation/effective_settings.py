"""The settings of an evaluation: model, loss and preparation of images come from the weights.

The command line overrides them. A recipe for evaluation alone (without a length of training) also
overrides them, if it names a model or an image size, as recipes of published protocols do.
"""

import dataclasses

import jax
import jax.numpy as jnp

from vit_jax import config as cfg
from vit_jax import models, weights
from vit_jax.config import Data, Loss
from vit_jax.data import resizing
from vit_jax.inference.model import LoadedModel
from vit_jax.models import requirements
from vit_jax.models.description import SETTINGS

# Settings of the model that follow from the parameters.
TOLD = (*SETTINGS, "representation_layer")


@dataclasses.dataclass(frozen=True)
class Asked:
  """The settings that the recipe and the command line ask for.

  Attributes:
    model, loss, data: groups of settings.
    given: the settings that the command line names, such as "data.image_size".
    protocol: whether the recipe is for evaluation alone, so that its settings override those of
      the weights.
  """

  model: cfg.Model
  loss: Loss
  data: Data
  given: frozenset[str] = frozenset()
  protocol: bool = True


@dataclasses.dataclass(frozen=True)
class Settings:
  """The settings that an evaluation uses."""

  model: cfg.Model
  loss: Loss
  data: Data


def settings(asked: Asked, found: LoadedModel) -> Settings:
  """The settings of an evaluation of a model.

  Raises:
    ValueError: a named setting contradicts the weights, or no image size is known.
  """
  check_named(asked, found)
  told, (model, loss) = found.module, overlaid_on_run(asked, found.read)
  function = function_of(told, model)
  data = preparation(asked, found)
  requirements.check_tiles(told, data.image_size, "these weights")
  resizing.check(data)
  return Settings(dataclasses.replace(model, num_classes=told.num_classes, **function), loss, data)


def overlaid_on_run(asked: Asked, read: weights.Weights) -> tuple[cfg.Model, Loss]:
  """The model and the loss of the weights' run or card, overridden by the command line."""
  model, loss, given = asked.model, asked.loss, asked.given
  if read.settings is not None:
    run = cfg.from_dict({key: read.settings[key] for key in ("model", "loss")})
    model = overlaid(run.model, model, "model", given)
    loss = overlaid(run.loss, loss, "loss", given)
    if model.attention == "cudnn" and "model.attention" not in given:
      model = dataclasses.replace(model, attention=attention_here())
  elif read.card:
    loss = overlaid(dataclasses.replace(loss, kind=read.card.loss), loss, "loss", given)
  return model, loss


def check_named(asked: Asked, found: LoadedModel):
  """Checks that the weights are of the model that the user named, if any.

  Raises:
    ValueError: names every setting that differs.
  """
  model, told = asked.model, found.module
  if "model.name" in asked.given or (model.name and asked.protocol):
    found.check_is(dataclasses.replace(model, **function_of(told, model)))
  for field in TOLD:
    wanted, there = getattr(model, field, None), getattr(told, field, None)
    if f"model.{field}" in asked.given and wanted != there and (wanted or isinstance(wanted, bool)):
      raise ValueError(
        f"config.model.{field} is {there} in these weights, but {wanted} was asked for; leave "
        "this setting out."
      )


def function_of(told, model) -> dict[str, str | float]:
  """The module's settings that do not follow from parameters: activation and norm epsilon."""
  return {key: getattr(told, key, getattr(model, key)) for key in ("activation", "norm_epsilon")}


def overlaid(own, named, group: str, given: frozenset[str]):
  """The settings `own` of a group, with those that the command line names taken from `named`."""
  named = {
    field.name: getattr(named, field.name)
    for field in dataclasses.fields(own)
    if f"{group}.{field.name}" in given
  }
  return dataclasses.replace(own, **named)


def preparation(asked: Asked, found: LoadedModel) -> Data:
  """The settings of the data, with the image size and the resizing of the evaluation.

  Raises:
    ValueError: no size is known.
    ConfigError: the size is smaller than a patch.
  """
  data, given = asked.data, asked.given
  named = data.image_size if "data.image_size" in given else 0
  if data.image_size and not named and asked.protocol:
    side = requirements.largest_side(found.module, data.image_size, "these weights")
    resize = data.evaluate_resize
  else:
    card = found.card.at_size(named) if named else found.card
    side = card.image_size or data.image_size
    resize = card.resize if found.read.card else data.evaluate_resize
  if not side:
    raise ValueError(
      "the weights do not tell the size of their images; give a size, such as "
      "--config.data.image_size=224."
    )
  if "data.evaluate_resize" in given:
    resize = data.evaluate_resize
  return dataclasses.replace(data, image_size=side, evaluate_resize=resize)


def preparation_in_words(data: Data, *, head: bool, known: bool) -> str:
  """Says how images are prepared.

  Args:
    data: the settings of the evaluation.
    head: whether config.data.evaluate is scored; if not, features are.
    known: whether the weights, the recipe or the user tell the resizing.
  """
  side = data.image_size
  if not head:
    return f"{resizing.square(side)} x {resizing.square(side)} px, centre of {side} px"
  guess = " (the weights do not tell whether a centre is to be cut: config.data.evaluate_resize)"
  said = resizing.in_words(data.evaluate_resize, side) + ("" if known else guess)
  own = [
    f"{name}: {resizing.in_words(resizing.of_set(dataset, data), side)}"
    for name, dataset in data.evaluate.items()
    if dataset.source and dataset.resize >= 0
  ]
  return "; ".join([said, *own])


def attention_here() -> str:
  """The attention to use here for a run that was trained with cuDNN's attention."""
  return "cudnn" if jax.default_backend() == "gpu" else "xla"


def computing(module, model) -> models.Network:
  """The module with the type, attention and scan of config.model."""
  options = dict(dtype=jnp.dtype(model.compute_dtype), attention=model.attention, scan=model.scan)
  known = {field.name for field in dataclasses.fields(module)}
  return module.clone(**{key: value for key, value in options.items() if key in known})
