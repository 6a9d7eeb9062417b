"""The plan of a config: classes that agree, a cache for training, a learning rate."""

import dataclasses
import types

import chex
import numpy as np
import pytest
from PIL import Image

from tests import resolved
from vit_jax import config as c
from vit_jax.config import recipe_file
from vit_jax.config.resolve import resolve
from vit_jax.evaluation.classification import Classification
from vit_jax.extras import prepared_cache as cache
from vit_jax.extras.commands import cache as tools_cache
from vit_jax.learning.classification import Settings
from vit_jax.training import facts
from vit_jax.training import run as runs

CONFIG = resolved.config(
  batch_size=16,
  duration=c.Duration(epochs=2),
  model=c.Model(name="ViT-Ti/4", depth=1, width=16, mlp_dim=16, heads=2, num_classes=10),
  data=c.Data(
    train=c.Dataset("digits", "train"),
    image_size=8,
  ),
  evaluate={"test": Classification("digits", "test"), "none": Classification()},
)


def test_sources_with_other_classes_are_refused_and_those_without_a_source_left_out(tmp_path):
  for name in "abcdefghij":
    (tmp_path / name).mkdir()
    (tmp_path / name / "1.png").write_bytes(b"")
  other = Classification(source=f"folder:{tmp_path}")
  config = dataclasses.replace(CONFIG, evaluate={"mine": other})
  with pytest.raises(c.ConfigError, match=r"evaluate\.mine.*training data has no class 'a', "):
    runs.open_data(config)
  assert [name for name, _ in runs.open_data(CONFIG).evaluations.evaluators] == ["test"]


def test_the_learning_rate_is_that_of_the_settings():
  schedule = c.Schedule(learning_rate=2.0, warmup=c.Duration(steps=10), decay="steps", drops=(0.5,))
  config = dataclasses.replace(CONFIG, duration=c.Duration(steps=40), schedule=schedule)
  made = resolved.run(config)
  np.testing.assert_allclose([made.rate(s) for s in (5, 10, 19, 20)], [1, 2, 2, 0.2], rtol=1e-6)


def test_a_cache_is_read_for_training_alone(tmp_path):
  cached = lambda side: dataclasses.replace(
    CONFIG, data=dataclasses.replace(CONFIG.data, cache=str(tmp_path / "cache"), cache_side=side)
  )
  with pytest.raises(c.ConfigError, match="There is no cache"):
    runs.open_data(cached(8))
  tools_cache.prepare(cached(8))
  with pytest.raises(c.ConfigError, match="its cache_side is 8, this run's 9"):
    runs.open_data(cached(9))
  plain, data = runs.open_data(CONFIG), runs.open_data(cached(8))
  assert type(data.train._source) is cache.Cached  # what is kept in memory is read from it
  scored = data.evaluations.heads()[0].source
  assert type(scored) is type(plain.evaluations.heads()[0].source)
  reader = runs.make(cached(8), data).reader
  first, second = (  # digits are no larger than the cache's side
    next(reader.training(source, parts=data.parts, seed=0, start=2 * CONFIG.batch_size))
    for source in (plain.train, data.train)
  )
  chex.assert_trees_all_equal(first, second)


def test_model_and_objective_have_the_attention_of_the_settings():
  run = resolved.run(CONFIG)
  assert run.config.model.attention == "xla"
  assert run.model.attention == run.objective.model.attention == run.attention == "xla"
  model = dataclasses.replace(CONFIG.model, attention="cudnn", compute_dtype="bfloat16")
  with pytest.raises(c.ConfigError, match=r"needs a GPU, and this is a cpu"):
    resolved.run(dataclasses.replace(CONFIG, model=model))


def test_the_objective_is_asked_about_the_labels(tmp_path):
  """CutMix refuses images with any number of them."""
  for name in "xy":
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(tmp_path / f"{name}.png")
  table = tmp_path / "photos.csv"
  table.write_text("image,labels\nx.png,a|b\ny.png,a\n")
  data = dataclasses.replace(CONFIG.data, train=c.Dataset(f"csv:{table}", label_key="labels"))
  model = dataclasses.replace(CONFIG.model, num_classes=c.AUTO)
  config = dataclasses.replace(CONFIG, model=model, data=data, evaluate={}, batch_size=2)
  assert runs.open_data(config).train.multi_label
  with pytest.raises(c.ConfigError, match=r"objective\.cutmix=1 is for images with one label each"):
    runs.open_data(dataclasses.replace(config, objective=Settings(cutmix=1.0)))


GPU = types.SimpleNamespace(platform="gpu", compute_capability="9.0")
ABLE = ("model.width=64", "model.heads=4", "model.attention=auto")


@pytest.mark.parametrize(
  ("words", "device", "attention"),
  [
    ((), GPU, "cudnn"),
    (("model.compute_dtype=float32",), GPU, "xla"),
    (("model.heads=16",), GPU, "xla"),
    (("model.width=56",), GPU, "xla"),
    (("model.attention=xla",), GPU, "xla"),
    ((), types.SimpleNamespace(platform="tpu"), "xla"),
    ((), types.SimpleNamespace(platform="cpu"), "heads_first"),
    (("model.compute_dtype=bfloat16",), types.SimpleNamespace(platform="cpu"), "xla"),
    (("model.attention=cudnn",), types.SimpleNamespace(platform="tpu"), "cudnn"),  # refused later
  ],
)
def test_attention_is_that_of_the_devices_and_follows_the_model(words, device, attention):
  given = dict(word.split("=") for word in (*ABLE, "model.compute_dtype=auto", *words))
  config = resolve(recipe_file.replaced(CONFIG, given), facts.of_devices([device]))
  assert config.model.attention == attention
