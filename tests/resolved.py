"""Settings as a run has them: what they leave to rules is decided."""

import dataclasses

import jax

from vit_jax import config as c
from vit_jax.config.fields import Labels, is_auto
from vit_jax.config.resolve import left_to_rule, resolve, value_of, with_value
from vit_jax.training import checks, facts
from vit_jax.training import run as runs

PLAIN = {
  "batch_size": 4096,
  "accumulation": 1,
  "duration": c.Duration(),
  "log_every": c.Duration(steps=50),
  "evaluate_every": c.Duration(epochs=1),
  "checkpoint.every": c.Duration(steps=1000),
  "model.name": "ViT-B/16",
  "model.compute_dtype": "float32",
  "model.attention": "xla",
  "loss.kind": "softmax",
  "optimizer.ema": 0.0,
  "schedule.learning_rate": 1e-3,
  "schedule.warmup": c.Duration(),
  "data.image_size": 224,
  "data.crop_area": (0.05, 1.0),
  "data.train_resize_ratio": 0.0,
  "data.flip": True,
  "data.evaluate_resize": 0,
  "data.evaluate_squeeze": False,
  "data.resampling": "bilinear",
  "position_resizing": "bilinear_aligned",
}


def config(**fields):
  """Settings without AUTO: those of `fields`, and plain ones that follow from nothing else.

  Only the number of devices is left open (config.mesh.data).
  """
  made = c.Config(**fields)
  for key, value in PLAIN.items():
    if is_auto(value_of(made, key)):
      made = with_value(made, key, value)
  return dataclasses.replace(without_data(made), origins=made.origins, derived=made.derived)


def evaluation(**fields):
  """Settings of --mode=evaluate, which leave to the weights what `fields` do not give."""
  usual = dict(batch_size=256, duration=c.Duration())
  return resolve(c.Config(**usual | fields), facts.of_devices())


def model(**fields):
  """The same, of a model."""
  return config(model=c.Model(**fields)).model


def data(**fields):
  """The same, of the data."""
  return config(data=c.Data(**fields)).data


def without_data(config, **known):
  """The settings, as far as they follow from one another, from weights and from facts `known`."""
  return resolve(config, facts.of_start() | {key: lambda _, x=x: x for key, x in known.items()})


def with_data(config, devices=()):
  """The settings with what the training data and the devices decide; a batch has one part."""
  training, _ = runs.open_training(config)
  known = facts.of_start() | facts.of_data(training, config) | facts.of_devices(devices)
  return resolve(config, known | {"parts": lambda config: (1, "")})


def run(config, devices=None, **options):
  """The run with these settings, on all devices or on some."""
  config = with_data(config, devices or jax.devices())
  return runs.make(config, runs.open_data(config), devices, **options)


def checked(config):
  """Checks settings as a run does, with made-up data; plain ones are as if nobody gave them."""
  known, asked = dict(images=1000, side=224, labels=Labels(("a", "b"))), config
  for key in (key for key, value in PLAIN.items() if value_of(config, key) == value):
    asked = left_to_rule(asked, key)
  checks.check(asked, without_data(config, **known))
