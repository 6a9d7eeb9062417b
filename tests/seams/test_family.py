"""A family of models is one file and one line: a toy goes through the main program and tools."""

import dataclasses
import re
import types

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.seams import program
from vit_jax import config as c
from vit_jax import inference, models, recipes, registry
from vit_jax.config import ConfigError
from vit_jax.config.resolve import resolve, with_value
from vit_jax.extras.commands import export
from vit_jax.extras.report import report
from vit_jax.models.family import Family, Network
from vit_jax.models.layers import Head
from vit_jax.recipes import cost
from vit_jax.storage import metrics_log
from vit_jax.training import facts

pytestmark = pytest.mark.usefixtures("one_device")


class PatchMLP(Network, nn.Module):
  """Two dense layers for each patch, and their mean."""

  patch: int
  width: int = 16
  num_classes: int = 1000
  dtype: jnp.dtype = jnp.float32

  @nn.compact
  def features(self, images, *, train):
    rows, columns = self.grid(*images.shape[1:3])
    x = images.astype(self.dtype).reshape(len(images), rows, self.patch, columns, self.patch, 3)
    x = x.swapaxes(2, 3).reshape(len(images), rows * columns, -1)
    x = nn.relu(nn.Dense(self.width, dtype=self.dtype, name="patch_mlp")(x))
    x = nn.Dense(self.width, dtype=self.dtype, name="second")(x)
    return {"patches": x, "pre_logits": x.mean(axis=1)}

  @nn.compact
  def __call__(self, images, *, train):
    features = self.features(images, train=train)
    return Head(self.num_classes, 0.0, self.dtype, name="head")(features["pre_logits"]), features

  def grid(self, height, width):
    if height % self.patch or width % self.patch:
      raise ValueError(f"{self.patch} pixels do not tile {height} x {width}")
    return height // self.patch, width // self.patch

  def stride(self):
    return self.patch

  def feature_width(self):
    return self.width

  def macs(self, height, width):
    rows, columns = self.grid(height, width)
    of_patch = 3 * self.patch**2 * self.width + self.width**2
    return rows * columns * of_patch + self.width * self.num_classes


def fields(name):
  match = re.fullmatch(r"PatchMLP/(\d+)", name)
  return match and dict(patch=int(match[1]))


def recognise(params):
  if "patch_mlp" not in params:
    return None
  inputs, width = params["patch_mlp"]["kernel"].shape
  outputs = params["head"]["kernel"].shape[1] if "head" in params else 1
  return dict(patch=round((inputs / 3) ** 0.5), width=width, num_classes=outputs)


TOY = Family(
  module=PatchMLP,
  names=("PatchMLP/4", "PatchMLP/8"),
  fields=fields,
  recognise=recognise,
  alike=lambda module: [f"PatchMLP/{module.patch}"],
)
WORDS = (
  "--config.model.name=PatchMLP/4",
  *(f"--config.model.{key}=0" for key in ("depth", "mlp_dim", "heads")),
  "--config.duration.epochs=0",
  "--config.duration.steps=6",
)


@pytest.fixture(autouse=True)
def line(monkeypatch):
  monkeypatch.setitem(registry.FAMILIES, "patch_mlp", "tests.seams.test_family:TOY")


def test_it_is_created_by_name_and_described_by_its_settings():
  assert "PatchMLP/8" in models.names()
  module = models.create("PatchMLP/6", width=24)
  assert (module.patch, module.width) == (6, 24)
  described = models.settings_of(module)
  assert (described.name, described.width) == ("PatchMLP/6", 24)
  with pytest.raises(ValueError, match="nearest: PatchMLP/4"):
    models.create("PatchMLP-4")


def test_it_is_trained_evaluated_reported_and_exported(tmp_path):
  whole, path, page = tmp_path / "whole", tmp_path / "weights.npz", tmp_path / "report.html"
  assert program.run(whole, *WORDS)
  assert program.run(whole, *WORDS, mode="evaluate")
  assert any("test/top1" in line for line in metrics_log.read_lines(whole))
  report.write([whole], page, inside=True)
  assert "PatchMLP/4" in page.read_text()
  export.main(["--source", str(whole), "--output", str(path), "--verify"])
  again, run = inference.load(path), inference.load(whole)
  assert again.module == run.module
  chex.assert_trees_all_equal(again.params, run.params)
  start = f"--config.init_from={path}", "--config.model.name=auto"
  assert program.run(tmp_path / "tuned", *WORDS, *start)


def test_it_has_no_attention_that_a_library_could_compute():
  gpu = types.SimpleNamespace(platform="gpu", compute_capability="9.0")
  config = c.Config(model=c.Model("PatchMLP/4", num_classes=3), data=c.Data(image_size=8))
  config = resolve(config, facts.of_start() | facts.of_devices([gpu]))
  assert config.model.attention == "xla"
  assert type(models.configured(config.model)) is PatchMLP
  with pytest.raises(ValueError, match="attention is no option of PatchMLP/4"):
    models.configured(with_value(config, "model.attention", "cudnn").model)


class Variant(PatchMLP):
  """One that its parameters alone tell from what it varies."""


VARIANT = dataclasses.replace(
  TOY, module=Variant, recognise=lambda params: recognise(params) if "third" in params else None
)


def test_a_variant_behind_its_family_is_recognised_before_it(monkeypatch):
  monkeypatch.setitem(registry.FAMILIES, "variant", "tests.seams.test_family:VARIANT")
  params = {"patch_mlp": {"kernel": np.zeros((48, 16))}}
  assert type(models.module_of(params)) is PatchMLP
  assert type(models.module_of(params | {"third": np.zeros(16)})) is Variant


def test_features_need_no_head():
  module = models.create("PatchMLP/4")
  params = module.init(jax.random.key(0), np.zeros((1, 8, 8, 3)), train=False)["params"]
  del params["head"]
  model = inference.model.of_weights(inference.model.Weights(jax.device_get(params), None))
  assert model.params["head"]["kernel"].shape == (16, 1)


def test_its_cost_is_counted():
  config = recipes.resolve("configs/vit_digits.py", (*program.SMALL, *WORDS))
  row = cost.cost(config, 10)
  assert row["params"] == 3 * 16 * 8 + 8 + 8 * 8 + 8 + 8 * 10 + 10
  side = config.data.image_size
  patches = (side // 4) ** 2
  assert row["gmacs"] == pytest.approx((patches * (48 * 8 + 64) + 80) / 1e9)


NO_HEAD = "--config.evaluate.test.source="


@pytest.mark.parametrize(
  ("word", "message"),
  [
    ("--config.data.image_size=30", "image_size=30 is not divisible .* nearest: 28, 32"),
    ("--config.model.dropout=0.1", "dropout is no option of PatchMLP/4"),
    (f"--config.objective.kind=masked_patches {NO_HEAD}", "PatchMLP/4: it has no patch embeddings"),
  ],
)
def test_what_it_cannot_do_is_refused(tmp_path, word, message):
  with pytest.raises(ConfigError, match=message):
    program.run(tmp_path / "run", *WORDS, *word.split())
