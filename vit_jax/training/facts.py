"""The facts of a run that rules of settings read: weights, data, devices (config/fields.py)."""

import dataclasses
import functools
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax

from vit_jax import models
from vit_jax.config import AUTO, Config, ConfigError, Model, RunError
from vit_jax.config.data import SIDE
from vit_jax.config.fields import Labels
from vit_jax.config.resolve import Facts
from vit_jax.config.run import SCORED_AT_ONCE
from vit_jax.data import images
from vit_jax.data.datasets import Training, class_shares
from vit_jax.data.sources import Source
from vit_jax.inference import model as inference
from vit_jax.models import Network, family
from vit_jax.storage import base, checkpoint
from vit_jax.storage.base import raised_as
from vit_jax.storage.paths import path_of
from vit_jax.weights import Weights, workdir
from vit_jax.weights.card import Card

# Settings that checks do not need, or that wait for the devices.
LATER = frozenset(
  {
    "model.num_classes",
    "loss.kind",
    "model.compute_dtype",
    "model.attention",
    "mesh.data",
    "accumulation",
    "objective.class_weights",
  }
)


SAMPLE = 32  # images that are decoded for the median of their sides


@dataclasses.dataclass(frozen=True)
class Start:
  """Weights to start from, as far as they are read before the processes are connected.

  Attributes:
    card: how images are prepared, and the model, all fields given.
    weights: the parameters; None for a workdir, of which only the description was read.
  """

  card: Card
  weights: Weights | None = None


def start_of(init_from: str, positions: str = AUTO) -> Start:
  """Reads the card of the weights in config.init_from, and the weights unless they are a run's.

  Args:
    init_from: config.init_from.
    positions: config.model.positions, for weights that do not tell them.

  Raises:
    ConfigError: they cannot be read, or are of a model without a name.
  """
  words = lambda error: f"config.init_from={init_from}: {error}"
  damage = (ValueError, LookupError, TypeError, AttributeError)
  with raised_as(ConfigError, words, *damage, OSError, RunError):
    path = path_of(init_from)
    if not checkpoint.named_by(path)[1]:
      source = inference.read_model(path, otherwise=Model(positions=positions))
      return Start(source.card, source.read)
    _, meta = checkpoint.described(path)
    if not meta:
      raise ValueError("none of its checkpoints can be read")
    if "model" not in meta["config"]:
      raise ValueError("the settings of its checkpoint name no model")
    return Start(workdir.card_of(meta, average=False))


def of_start() -> Facts:
  """The facts before data is opened: the weights to start from, and the architectures by name.

  The weights are read once, when a rule needs them; `start` gives the whole `Start`.
  """
  starts = {}

  def start(config):
    place = config.init_from
    if place and place not in starts:
      starts[place] = start_of(place, config.model.positions)
    return starts.get(place)

  def card(config):
    known = start(config)
    return known and known.card

  def architecture(config):
    known = start(config)
    return known and known.card.model

  return {
    "start": start,
    "card": card,
    "architecture": architecture,
    "scored_at_once": lambda config: 0,
    "representation": lambda config: config.objective.representation,
    "fields": lambda config: fields_of(config.model.name),
    "largest_side": lambda config: functools.partial(largest_side, config.model),
  }


def of_evaluation(place: str) -> Facts:
  """The facts of an evaluation before its weights are read.

  Args:
    place: config.init_from, or a workdir; "": no weights.
  """

  def scored_at_once(config):
    meta = {}
    if place:
      _, meta = checkpoint.described(path_of(place), config.evaluate_step)
    batch_size = meta.get("config", {}).get("batch_size", 0)
    if isinstance(batch_size, int) and batch_size:
      return batch_size
    return SCORED_AT_ONCE

  return {"scored_at_once": scored_at_once}


def of_data(training: Training, config: Config) -> Facts:
  """The facts of opened training data; `config` as for `open_training`."""
  source = training.source
  side = functools.cache(lambda: median_side(source, max_pixels=config.data.max_pixels))
  labels = Labels()
  if config.objective.needs_labels:
    labels = Labels(source.class_names, source.multi_label)
  return {
    "images": lambda config: len(source),
    "labels": lambda config: labels,
    "class_shares": lambda config: class_shares(training, threads=config.data.threads),
    "side": lambda config: side(),
  }


def of_devices(devices: Sequence[jax.Device] = ()) -> Facts:
  """The facts of `devices`, by default of all; the devices are asked when a rule needs them."""

  def present():
    return devices or jax.devices()

  return {
    "device": lambda config: present()[0],
    "devices": lambda config: len(present()),
    "attention": lambda config: attention_on(config, present()[0]),
  }


def module_of(model: Model) -> Network:
  """The module that config.model describes; with one class if the number comes from the data.

  Raises:
    ConfigError: there is no such architecture.
  """
  with models.named_as_settings():
    models.fields_of(model.name)  # a misspelt name is refused although all fields are given
    return models.configured(model.with_classes(1))


def fields_of(name: str) -> Mapping[str, Any]:
  """The fields of the model with this name.

  Raises:
    ConfigError: there is no such model.
  """
  with models.named_as_settings():
    return models.fields_of(name)


def largest_side(model: Model, most: int) -> int:
  """The largest side up to `most` pixels that the model's patches tile.

  Raises:
    ConfigError: there is no such model, or its patches are larger.
  """
  return family.largest_side(module_of(model), most, model.name)


def attention_on(config: Config, device: jax.Device) -> str:
  """How the attention of config.model is computed on a device.

  Raises:
    ConfigError: there is no such model.
  """
  return family.attention_on(module_of(config.model), config.data.image_size, device)


def median_side(source: Source, *, max_pixels: int) -> int:
  """The median smaller side of a sample of images, in pixels; SIDE if all of them are broken.

  Raises:
    ConfigError: reading is not allowed, which concerns all images.
  """

  def side(index: int) -> int:
    example = base.retried(lambda: source[index], lambda: source.name(index))
    return min(images.as_stored(example.image, max_pixels=max_pixels).shape[:2])

  def sides() -> Iterator[int]:
    for index in range(0, len(source), max(1, len(source) // SAMPLE)):
      try:
        yield side(index)
      except ConfigError:
        raise
      except (images.BadImage, OSError):  # training leaves it out too
        continue

  return round(statistics.median([*sides()] or [SIDE]))
