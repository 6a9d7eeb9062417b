"""Settings as a run has them: what they leave to rules is decided."""

import jax

from vit_jax.config.facts import Labels
from vit_jax.config.resolve import resolve
from vit_jax.training import checks, facts
from vit_jax.training import run as runs


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
  """Checks settings as a run does, with made-up data."""
  known = dict(images=1000, side=224, labels=Labels(("a", "b")))
  checks.check(config, without_data(config, **known))
