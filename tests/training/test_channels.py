"""A run on images of five channels, from weights for RGB images."""

import dataclasses

import jax
import numpy as np
import pytest

from tests import resolved, tiny_run
from tests.weights import families
from vit_jax import config as c
from vit_jax import weights
from vit_jax.data.augmentation.three_augment import ThreeAugment
from vit_jax.inference.model import read_model
from vit_jax.training import checks, init_from
from vit_jax.weights.card import Card
from vit_jax.weights.fit import for_channels

VIT = dict(name="ViT-B/4", depth=2, width=32, mlp_dim=64, heads=2, compute_dtype="float32")


def settings(tmp_path, **model):
  rng = np.random.default_rng(0)
  for name in "ab":
    (tmp_path / f"images/{name}").mkdir(parents=True)
    for i in range(16):
      np.save(tmp_path / f"images/{name}/{i}", rng.integers(0, 256, (16, 20, 5), dtype=np.uint8))
  path = tmp_path / "w.safetensors"
  weights.write(path, weights.Weights(families.params("vit"), Card(16)))
  folder = f"folder:{tmp_path / 'images'}"
  evaluation = dataclasses.replace(tiny_run.CONFIG.evaluate["test"], source=folder, split="[50%:]")
  return dataclasses.replace(
    tiny_run.CONFIG,
    batch_size=16,
    init_from=str(path),
    new_head=True,
    model=resolved.model(**VIT, num_classes=2, channels=5, **model),
    data=dataclasses.replace(
      tiny_run.CONFIG.data, train=c.Dataset(folder, "[:50%]"), train_pad=2, crop_area=(0.05, 1.0)
    ),
    evaluate={"test": evaluation},
  )


def test_a_run_from_weights_for_rgb_images(tmp_path):
  run = resolved.run(settings(tmp_path), jax.devices()[:1])
  initial = init_from.read_initial(run.config, run.objective, "ab")
  kernel = for_channels(families.params("vit")["embedding"]["kernel"], 5)
  np.testing.assert_array_equal(initial.params["embedding"]["kernel"], kernel)
  assert "embedding/kernel" in initial.report
  assert "3 -> 5 channels" in initial.report
  assert run.abstract.params["embedding"]["kernel"].shape == kernel.shape
  read = run.reader.training(run.data.train, parts=run.data.parts, seed=0, start=0)
  assert next(read)["image"].shape == (16, 16, 16, 5)
  read.close()


def test_predictions(tmp_path):
  """For arrays in memory and in files; the card says how many channels there are."""
  params = families.params("vit")
  params |= {"embedding": {"kernel": np.ones((4, 4, 5, 32), np.float32)}}
  path = tmp_path / "w.safetensors"
  weights.write(path, weights.Weights(params, Card(16)))
  model = read_model(path).at_size()
  assert (model.module.channels, model.card.channels) == (5, 5)
  image = np.random.default_rng(0).integers(0, 256, (16, 20, 5), dtype=np.uint8)
  np.save(tmp_path / "image", image)
  (of_array,) = model.predict(image)
  (of_file,) = model.predict(tmp_path / "image.npy")
  assert of_array.classes == of_file.classes
  assert model.predict(image[..., :3])[0].error.startswith("Pixels are uint8")


def test_augmentations_are_of_rgb_images(tmp_path):
  config = settings(tmp_path)
  config = dataclasses.replace(
    config, data=dataclasses.replace(config.data, augment=(ThreeAugment(),))
  )
  with pytest.raises(c.ConfigError, match=r"config\.data\.augment \(three_augment\) changes RGB"):
    checks.check_channels(config)
