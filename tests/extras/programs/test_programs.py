"""Models as programs: a file computes what `predict` does, for every batch size."""

import dataclasses
import json
import sys

import jax
import jax.export
import numpy as np
import pytest

from tests.weights import families
from vit_jax import registry, weights
from vit_jax.config import ConfigError
from vit_jax.extras.commands import export
from vit_jax.extras.programs import onnx, program
from vit_jax.inference import model as inference
from vit_jax.models.stacking import stack_blocks
from vit_jax.weights import Weights
from vit_jax.weights.card import Card

CLASSES = tuple("abcde")
CARD = Card(image_size=16, class_names=CLASSES, loss="sigmoid")
STABLEHLO = registry.PROGRAM_FORMATS["stablehlo"]


def loaded(family, **card):
  of = dataclasses.replace(CARD, **card)
  return inference.of_weights(Weights(families.params(family), of)).at_size()


def pixels(count):
  return np.random.default_rng(count).integers(0, 256, (count, 16, 16, 3), dtype=np.uint8)


def assert_computes_what_predict_does(model, run, counts=(3,)):
  """Compares probabilities of batches of these sizes."""
  function = {"softmax": jax.nn.softmax, "sigmoid": jax.nn.sigmoid}[model.card.loss]
  for count in counts:
    images = pixels(count)
    logits = run(images)
    assert (logits.shape, logits.dtype) == ((count, len(CLASSES)), np.float32)
    found = [dict(each.classes) for each in model.predict(images, batch_size=count)]
    expected = [[each[name] for name in CLASSES] for each in found]
    np.testing.assert_allclose(function(logits), expected, atol=1e-5)


@pytest.mark.parametrize("family", ["vit", "map", "hybrid", "bit"])
def test_stablehlo_computes_what_predict_does(tmp_path, family):
  path = tmp_path / "model.stablehlo"
  model = loaded(family)
  program.write(model, "here", path, STABLEHLO)
  counts = (1, 3) if family == "vit" else (3,)
  assert_computes_what_predict_does(model, STABLEHLO.load(path), counts)
  exported = jax.export.deserialize(bytearray(path.read_bytes()))
  assert exported.platforms == ("cpu", "cuda", "tpu")


def test_stacked_blocks(tmp_path):
  path = tmp_path / "model.stablehlo"
  model = loaded("vit", loss="softmax")
  module = model.module.clone(scan=True)
  stacked = dataclasses.replace(model, module=module, params=stack_blocks(model.params))
  program.write(stacked, "here", path, STABLEHLO)
  assert_computes_what_predict_does(model, STABLEHLO.load(path))


@pytest.fixture
def source(tmp_path):
  weights.write(tmp_path / "source.npz", Weights(families.params("vit"), CARD))
  return tmp_path / "source.npz"


def run(*arguments):
  return export.export(export.flags().parse_args([str(a) for a in arguments]))


def test_the_tool_writes_verifies_and_describes_a_program(source, tmp_path):
  words = run("--source", source, "--output", tmp_path / "new" / "m.stablehlo", "--verify")
  assert "images: uint8 (batch, 16, 16, 3) -> logits: float32 (batch, 5)" in words
  assert "largest difference of the outputs, in batches of 1 and 3: " in words
  assert {path.name for path in (tmp_path / "new").iterdir()} == {
    *("m.stablehlo", "m.stablehlo.json"),
  }
  assert_describes(json.loads((tmp_path / "new" / "m.stablehlo.json").read_text()))


def assert_describes(description):
  assert description["image_size"] == 16
  assert description["class_names"] == list(CLASSES)
  assert description["pixels"] == "RGB, 0 to 255; the program scales them itself"
  assert description["preparation"] == "resize: 16 x 16 px, bilinear without antialiasing"
  assert description["output"].endswith("sigmoid gives probabilities")


@pytest.mark.parametrize("representation", ["pre_logits", "patches"])
def test_weights_without_a_head_give_features(representation):
  params = families.params("representation")
  del params["head"]
  card = Card(image_size=16, representation=representation)
  model = inference.of_weights(Weights(params, card)).at_size()
  made = program.of_model(model)
  images = pixels(3)
  assert made.description["output"] == "features: float32 (batch, 32), the weights have no head"
  np.testing.assert_allclose(made.function(images), model.features(images), atol=1e-5)


def test_a_projection_gives_embeddings():
  model = inference.of_weights(Weights(families.params("vit"), Card(16, projection=True))).at_size()
  words = "float32 (batch, 5), in the space that the encoder of texts shares"
  assert program.of_model(model).description["output"] == f"embeddings: {words}"


@pytest.mark.parametrize(("wrong", "passes"), [(0.5, True), (2.0, False), (np.nan, False)])
def test_verify_finds_a_difference(wrong, passes):
  model = loaded("vit")
  function = program.of_model(model).function
  shift = wrong * program.BOUND

  def load(path):
    return lambda images: function(images) + shift * np.abs(function(images)).max()

  form = dataclasses.replace(STABLEHLO, load=load)
  if passes:
    assert "in batches of 1 and 3: " in program.verify(model, None, form)
  else:
    with pytest.raises(ValueError, match=r"of up to .*, above 0.0001 of the largest"):
      program.verify(model, None, form)


@pytest.mark.parametrize(
  ("suffix", "library", "install"),
  [
    ("stablehlo", "flatbuffers", r"pip install '.\[programs\]'"),
    ("onnx", "jax2onnx", "python -m "),
  ],
)
def test_a_library_that_is_missing_is_named_before_anything_is_read(
  tmp_path, monkeypatch, suffix, library, install
):
  monkeypatch.setitem(sys.modules, library, None)
  with pytest.raises(ConfigError, match=f"need .*{library}.*{install}"):
    run("--source", tmp_path / "none.npz", "--output", tmp_path / "new" / f"m.{suffix}")
  assert not list(tmp_path.iterdir())


def test_parameters_that_are_too_large_are_refused(source, tmp_path, monkeypatch):
  monkeypatch.setattr(program, "MOST", 50_000)
  with pytest.raises(ConfigError, match=r"can hold 0.00 GB.*export weights instead"):
    run("--source", source, "--output", tmp_path / "m.stablehlo")
  assert not (tmp_path / "m.stablehlo").exists()


@pytest.mark.parametrize("family", ["vit", "map", "hybrid", "bit"])
def test_onnx_computes_what_predict_does(tmp_path, family):
  pytest.importorskip("jax2onnx")
  path = tmp_path / "model.onnx"
  model = loaded(family)
  program.write(model, "here", path, onnx.ONNX)
  assert_computes_what_predict_does(model, onnx.ONNX.load(path))
  assert_describes(metadata(path))


def metadata(path):
  """The description in the metadata of a file."""
  import onnxruntime

  texts = onnxruntime.InferenceSession(path).get_modelmeta().custom_metadata_map
  return texts | {key: json.loads(texts[key]) for key in ("image_size", "class_names")}
