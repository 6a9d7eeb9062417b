"""What an evaluation takes from the weights that it scores: model, loss, preparation of images.

The command line goes before them. A recipe for evaluation alone (without a length of training) goes
before them too, where it names a model or an image size, as for sets with a published protocol.
"""

import dataclasses

import jax
import jax.numpy as jnp

from vit_jax import models, weights
from vit_jax.config import Config, Data, recorded
from vit_jax.data import resizing
from vit_jax.inference import init_from, loading
from vit_jax.models import requirements

# Settings of the model that parameters tell by themselves.
TOLD = (*init_from.FIELDS, "representation_layer")


def settings(
  config: Config,
  read: weights.Weights,
  told: models.ViT | models.ResNet,
  given: frozenset[str],
) -> Config:
  """The settings of an evaluation.

  Args:
    config: those of the recipe and the command line.
    read: the weights.
    told: the module that their parameters belong to.
    given: the settings that the command line names, such as "data.image_size".

  Raises:
    ValueError: what is named contradicts the weights, or no image size is known.
  """
  check_named(config, told, given)
  model, loss = config.model, config.loss
  if read.settings is not None:
    run = recorded.settings({key: read.settings[key] for key in ("model", "loss")})
    model = overlaid(run.model, model, "model", given)
    loss = overlaid(run.loss, loss, "loss", given)
    if model.attention == "cudnn" and "model.attention" not in given:
      model = dataclasses.replace(model, attention=attention_here())
  elif read.card:
    loss = overlaid(dataclasses.replace(loss, kind=read.card.loss), loss, "loss", given)
  config = dataclasses.replace(
    config,
    model=dataclasses.replace(model, num_classes=told.num_classes, **function_of(told, model)),
    loss=loss,
    data=preparation(config, read, told, given),
    new_head=False,
  )
  requirements.check_tiles(told, config.data.image_size, "these weights")
  resizing.check(config.data)
  return config


def check_named(config: Config, told, given: frozenset[str]):
  """The weights are of the model that is named, if any is.

  Raises:
    ValueError: names every setting that differs.
  """
  if "model.name" in given or (config.model.name and not config.duration.given()):
    model = dataclasses.replace(config.model, **function_of(told, config.model))
    init_from.check_model(told, dataclasses.replace(config, model=model))
  for field in TOLD:
    wanted, found = getattr(config.model, field, None), getattr(told, field, None)
    if f"model.{field}" in given and wanted != found and (wanted or isinstance(wanted, bool)):
      raise ValueError(
        f"config.model.{field} is {found} in these weights, and {wanted} was asked for; leave it "
        "out."
      )


def function_of(told, model) -> dict[str, str | float]:
  """What parameters do not tell of the function that they are for, as the module has it."""
  return {key: getattr(told, key, getattr(model, key)) for key in ("activation", "norm_epsilon")}


def overlaid(own, named, group: str, given: frozenset[str]):
  """The settings `own` of a group, but for those that the command line names."""
  named = {
    field.name: getattr(named, field.name)
    for field in dataclasses.fields(own)
    if f"{group}.{field.name}" in given
  }
  return dataclasses.replace(own, **named)


def preparation(config: Config, read: weights.Weights, told, given: frozenset[str]) -> Data:
  """The settings of the data, with the size of images and their resizing.

  Raises:
    ValueError: no size is known.
  """
  data = config.data
  named = data.image_size if "data.image_size" in given else 0
  if data.image_size and not named and not config.duration.given():
    side, resize = largest_side(told, data.image_size), data.evaluate_resize
  else:
    card = loading.prepared(read, named)
    side = card.image_size or data.image_size
    resize = card.resize if read.card else data.evaluate_resize
  if not side:
    raise ValueError(
      "the weights do not tell the size of their images; give it, such as "
      "--config.data.image_size=224."
    )
  if "data.evaluate_resize" in given:
    resize = data.evaluate_resize
  return dataclasses.replace(data, image_size=side, evaluate_resize=resize)


def preparation_in_words(config: Config, *, known: bool) -> str:
  """How images are prepared; `known`: whether the weights or the user have said so."""
  side, resize = config.data.image_size, config.data.evaluate_resize
  said = f"smaller side to {resize} px, centre of {side} px" if resize else f"{side} x {side} px"
  guess = " (the weights do not tell whether a centre is to be cut: config.data.evaluate_resize)"
  return said if known else said + guess


def largest_side(module, most: int) -> int:
  """The largest side of square images, up to `most` pixels, that the module's patches tile."""
  stride = 1 if isinstance(module, models.ResNet) else module.stride()
  return max(most // stride, 1) * stride


def attention_here() -> str:
  """The attention of a run on GPUs, on the devices that there are."""
  return "cudnn" if jax.default_backend() == "gpu" else "xla"


def computing(module, model) -> models.ViT | models.ResNet:
  """The module, computing as config.model says."""
  options = dict(dtype=jnp.dtype(model.compute_dtype), attention=model.attention, scan=model.scan)
  known = {field.name for field in dataclasses.fields(module)}
  return module.clone(**{key: value for key, value in options.items() if key in known})
