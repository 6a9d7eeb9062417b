"""vit-jax export: every format is verified, and impossible exports are refused."""

import dataclasses

import numpy as np
import pytest

from tests.weights import families
from vit_jax import weights
from vit_jax.config import Model
from vit_jax.extras.commands import export
from vit_jax.inference import export as exporting
from vit_jax.inference import model as inference
from vit_jax.weights import Weights
from vit_jax.weights.card import Card

FUNCTION = dict(activation="gelu", norm_epsilon=1e-3)
MODEL = Model(**FUNCTION)
CARD = Card(image_size=16, class_names=tuple("abcde"), loss="sigmoid", model=MODEL)


@pytest.fixture
def source(tmp_path):
  weights.write(tmp_path / "source.npz", Weights(families.params("vit"), CARD))
  return tmp_path / "source.npz"


def run(*arguments):
  return export.export(export.flags().parse_args([str(a) for a in arguments]))


@pytest.mark.parametrize(
  ("name", "flags"),
  [
    ("out.npz", ()),
    ("out.msgpack", ()),
    ("out.safetensors", ("--format", "safetensors")),
    ("out", ()),
    ("vit-base-v1.5", ("--format", "huggingface")),
  ],
)
def test_every_format_keeps_parameters_and_card(source, tmp_path, name, flags):
  words = run("--source", source, "--output", tmp_path / name, "--verify", *flags)
  assert "images of 16 px, 5 class names" in words
  assert "largest difference of the logits and features after reading it again: 0" in words
  read = weights.read(tmp_path / name)
  families.assert_same_bits(read.params, families.params("vit"))
  exported = inference.read_model(tmp_path / name).card
  assert exported == inference.read_model(source).card
  assert dataclasses.replace(exported, model=MODEL) == CARD
  assert exported.model == dataclasses.replace(exported.model, **FUNCTION)


ONE, OTHER = (families.params("vit", seed=seed) for seed in (0, 1))
BARE, BARE_OTHER = ({k: v for k, v in tree.items() if k != "head"} for tree in (ONE, OTHER))
SHIFTED = {"head": ONE["head"] | {"bias": ONE["head"]["bias"] + np.float32(2e-5)}}
ZEROS = {"head": {"kernel": np.zeros((32, 5), np.float32), "bias": np.zeros(5, np.float32)}}


@pytest.mark.parametrize(
  ("params", "changed", "message"),
  [
    (ONE, ONE | SHIFTED, "logits and features .*: 2.*e-05, above 1e-05"),
    (BARE, BARE_OTHER, r"features \(there is no head\) .*, above 1e-05"),
    (ONE | ZEROS, OTHER | ZEROS, "logits and features .*, above 1e-05"),
  ],
)
def test_verify_finds_a_difference(params, changed, message):
  model, again = (inference.of_weights(Weights(tree, CARD)) for tree in (params, changed))
  with pytest.raises(ValueError, match=message):
    exporting.verify(model, again)


@pytest.mark.parametrize("family", ["gap", "bit"])
def test_weights_without_a_head(tmp_path, family):
  params = families.params(family)
  del params["head"]
  weights.write(tmp_path / "bare.npz", Weights(params, Card(image_size=16)))
  words = run("--source", tmp_path / "bare.npz", "--output", tmp_path / "out.npz", "--verify")
  assert "These weights have no head" in words
  assert "largest difference of the features (there is no head) after reading it again: 0" in words


HEADS = "timm does not read the number of heads, 2, from a file"


@pytest.mark.parametrize(
  ("family", "output", "notes"),
  [
    ("representation", "out.npz", [HEADS, "drop its representation layer without a warning"]),
    (
      "later",
      "out.npz",
      [HEADS, "its LayerScale and norms of queries and keys and registers without a"],
    ),
    ("representation", "out.msgpack", []),
    ("2d", "out.safetensors", ["pos_embedding_column. Its arrays have the published names"]),
    ("vit", "out.safetensors", ["its pixels must be from -1 to 1", "act_layer=gelu_tanh", HEADS]),
  ],
)
def test_what_other_readers_do_not_take_is_told(tmp_path, family, output, notes):
  weights.save(tmp_path / "source.npz", families.params(family))
  words = run("--source", tmp_path / "source.npz", "--output", tmp_path / output)
  for line, note in zip(words.splitlines()[1:], notes, strict=True):
    assert note in line
  assert "images of 16 px, no class names" in words
  families.assert_same_bits(weights.load(tmp_path / output), families.params(family))


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    (("--output", "x.npz", "--format", "msgpack"), r"no name for the format 'msgpack'"),
    (
      ("--output", "x.tflite"),
      r"no name for a format of weights.*\.stablehlo \(stablehlo\), \.onnx",
    ),
    (("--output", "x.npz", "--raw-params"), "has no checkpoints to choose"),
    (("--output", "x.npz", "--step=7"), "has no checkpoints to choose"),
    (("--output", "x-0.1"), r"no name for a format of weights.*x-0 \(huggingface\)"),
    (("--output", "source.npz/x.npz"), r"source\.npz"),
  ],
)
def test_what_cannot_be_done_leaves_nothing_behind(
  source, tmp_path, monkeypatch, arguments, message
):
  monkeypatch.chdir(tmp_path)
  before = sorted(tmp_path.iterdir())
  with pytest.raises((ValueError, OSError), match=message):
    run("--source", source, *arguments)
  assert sorted(tmp_path.iterdir()) == before


def test_weights_that_lack_a_parameter_are_not_written(tmp_path):
  params = families.params("vit")
  del params["Transformer"]["encoder_norm"]["bias"]
  weights.write(tmp_path / "source.npz", Weights(params, CARD))
  with pytest.raises(ValueError, match=r"encoder_norm/bias \(32,\) is missing"):
    run("--source", tmp_path / "source.npz", "--output", tmp_path / "out.npz", "--verify")
  assert not (tmp_path / "out.npz").exists()
