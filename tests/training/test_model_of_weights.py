"""A run that names no model has that of its weights."""

import dataclasses

import pytest

from tests.weights import families
from vit_jax import config as c
from vit_jax import models, weights
from vit_jax.models.differences import differences
from vit_jax.storage import checkpoint
from vit_jax.training import model_of_weights

UNNAMED = c.Config(model=c.Model(name="", dropout=0.1, num_classes=7))


def completed(path, begun=None, **model):
  config = dataclasses.replace(UNNAMED, model=dataclasses.replace(UNNAMED.model, **model))
  return model_of_weights.completed(dataclasses.replace(config, init_from=str(path)), begun or {})


def test_a_named_model_stays():
  config = c.Config(init_from="/none-such")
  assert model_of_weights.completed(config, {}) == config


@pytest.mark.parametrize("family", ["vit", "bit", "representation"])
def test_the_model_of_a_file(tmp_path, family):
  path = tmp_path / "w.npz"
  weights.save(path, families.params(family))
  found = completed(path).model
  assert (found.dropout, found.num_classes) == (0.1, 7)
  plain = dataclasses.replace(found, dropout=0.0)
  assert differences(models.configured(plain), families.module(family)) == []


def test_the_model_of_another_run(tiny_run):
  found = completed(tiny_run).model
  assert (found.name, found.depth, found.width) == ("ViT-Ti/4", 1, 8)
  assert completed(tiny_run, depth=3).model.depth == 3  # a contradiction that the start refuses


def test_no_array_of_a_run_is_read(tiny_run, monkeypatch):
  """Orbax would touch the devices before the processes of a run are connected."""
  monkeypatch.setattr(checkpoint, "read", None)
  (step,) = (tiny_run / "checkpoints").iterdir()
  assert completed(tiny_run).model == completed(step).model


def test_a_run_that_goes_on_has_its_own_model():
  recorded = c.to_dict(c.Config(model=c.Model(name="ViT-S/16", depth=5)))
  found = completed("/none-such", recorded).model
  assert (found.name, found.depth, found.dropout) == ("ViT-S/16", 5, 0.1)


@pytest.mark.parametrize(
  ("path", "begun", "message"),
  [
    ("", {}, r"model\.name is empty, .* and config\.init_from is empty too"),
    ("/none-such.npz", {}, r"^config\.init_from=/none-such\.npz: .*does not exist"),
    ("x", {"model": {"name": 3}}, r"^The settings recorded in the workdir: .*model\.name=3 is int"),
    ("x", {"model": 3}, r"^The settings recorded .*config\.model=3 is one value"),
    ("x", {"batch_size": 3}, r"^The settings recorded .*: they name no model"),
  ],
)
def test_refusals(path, begun, message):
  with pytest.raises(c.ConfigError, match=message):
    completed(path, begun)
