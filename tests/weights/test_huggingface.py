"""Folders of Hugging Face's: round trip, and what the format has no place for."""

import json
import logging

import numpy as np
import pytest
from PIL import Image

from tests.weights import families
from vit_jax import weights
from vit_jax.predict import predict
from vit_jax.weights import Weights
from vit_jax.weights.card import Card

NAMES = ("bag", "boot", "coat", "dress", "shirt")


@pytest.fixture
def folder(tmp_path):
  path = tmp_path / "hf"
  weights.write(path, Weights(families.params("vit"), Card(image_size=16, class_names=NAMES)))
  return path


def test_the_same_bits_and_the_same_card_come_back(folder):
  read = weights.read(folder)
  families.assert_same_bits(read.params, families.params("vit"))
  assert read.card == Card(image_size=16, class_names=NAMES)


def test_what_the_folder_says(folder):
  settings = json.loads((folder / "config.json").read_text())
  assert settings["hidden_act"] == "gelu_pytorch_tanh"
  assert settings["layer_norm_eps"] == 1e-6
  assert settings["id2label"] == dict(zip("01234", NAMES, strict=True))
  preprocessor = json.loads((folder / "preprocessor_config.json").read_text())
  assert preprocessor["size"] == {"height": 16, "width": 16}
  assert preprocessor["image_mean"] == preprocessor["image_std"] == [0.5] * 3


@pytest.mark.parametrize(
  ("family", "what"),
  [
    ("bit", "a ResNet"),
    ("hybrid", "a hybrid's ResNet"),
    ("representation", "a representation layer"),
    ("gap", "without class token"),
    ("map", "without class token"),
    ("axial", "without class token"),
    ("none", "position embeddings other than"),
    ("2d", "position embeddings other than"),
    ("relative", "position embeddings other than"),
    ("1d_shared", "position embeddings other than"),
  ],
)
def test_what_the_format_has_no_place_for_is_refused(tmp_path, family, what):
  with pytest.raises(ValueError, match=rf"has no place for .*{what}"):
    weights.save(tmp_path / "hf", families.params(family))
  assert not (tmp_path / "hf").exists()


def test_a_centre_crop_is_refused(tmp_path):
  card = Card(image_size=16, resize=20)
  with pytest.raises(ValueError, match="centre cut out"):
    weights.write(tmp_path / "hf", Weights(families.params("vit"), card))


def change(path, **settings):
  path.write_text(json.dumps(json.loads(path.read_text()) | settings))


def test_the_exact_gelu_is_told(folder, caplog):
  change(folder / "config.json", hidden_act="gelu")
  with caplog.at_level(logging.WARNING):
    weights.load(folder)
  assert "asks for the activation 'gelu'" in caplog.text


@pytest.mark.parametrize(
  ("settings", "message"),
  [
    (dict(image_mean=[0.485, 0.456, 0.406]), r"image_mean is \[0\.485"),
    (dict(do_normalize=False), "do_normalize is False"),
    (dict(do_center_crop=True), "do_center_crop is True"),
    (dict(resample=3), "resample is 3"),
    (dict(size={"shortest_edge": 256}), "size is {'shortest_edge': 256}"),
  ],
)
def test_images_that_are_prepared_otherwise_are_refused(folder, settings, message):
  change(folder / "preprocessor_config.json", **settings)
  with pytest.raises(ValueError, match=message):
    weights.read(folder)


@pytest.mark.parametrize("classes", [None, {"1": "a", "2": "b"}, ["a"]])
def test_classes_without_an_order_are_refused(folder, classes):
  change(folder / "config.json", id2label=classes)
  with pytest.raises(ValueError, match="id2label must name the classes 0, 1, 2"):
    weights.read(folder)


def test_a_card_of_other_classes_is_refused(folder):
  change(folder / "config.json", id2label={"0": "a", "1": "b"})
  with pytest.raises(ValueError, match="names 2 classes; the head of the weights has 5"):
    weights.read(folder)


def test_transformers_gives_our_logits(folder):
  """The library itself, where it is installed; see docs/paper.md for the figure."""
  transformers = pytest.importorskip("transformers", reason="transformers is not installed")
  torch = pytest.importorskip("torch", reason="torch is not installed")
  images = families.images()
  ours, _ = families.module("vit").apply({"params": families.params("vit")}, images, train=False)
  model = transformers.ViTForImageClassification.from_pretrained(folder).eval()
  with torch.no_grad():
    theirs = model(torch.from_numpy(images.transpose(0, 3, 1, 2).copy())).logits.numpy()
  np.testing.assert_allclose(theirs, ours, atol=1e-5, rtol=0)


def test_a_pipeline_prepares_images_and_names_classes_as_we_do(folder, monkeypatch):
  """From the image to names and probabilities, without a network."""
  monkeypatch.setenv("HF_HUB_OFFLINE", "1")
  transformers = pytest.importorskip("transformers", reason="transformers is not installed")
  pytest.importorskip("torch", reason="torch is not installed")
  classify = transformers.pipeline("image-classification", model=str(folder))
  pixels = np.random.default_rng(0).integers(0, 256, (16, 16, 3), np.uint8)
  theirs = {c["label"]: c["score"] for c in classify(Image.fromarray(pixels), top_k=5)}
  Image.fromarray(pixels).save(folder.parent / "image.png")
  (ours,) = predict(
    weights.read(folder), [folder.parent / "image.png"], image_size=0, top=5, batch_size=1
  )
  assert theirs == pytest.approx(dict(ours.classes), abs=1e-5)
