"""tools/export.py: every format is verified, and impossible exports are refused."""

import json
import sys

import numpy as np
import pytest

from tests import programs
from tests.weights import families
from tools import export
from vit_jax import weights
from vit_jax.inference import export as exporting
from vit_jax.inference import model as inference
from vit_jax.weights import Weights
from vit_jax.weights.card import Card

CARD = Card(image_size=16, resize=0, class_names=tuple("abcde"), loss="sigmoid")


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
    ("out", ("--format", "huggingface")),
  ],
)
def test_every_format_keeps_parameters_and_card(source, tmp_path, name, flags):
  words = run("--source", source, "--output", tmp_path / name, "--verify", *flags)
  assert "images of 16 px, 5 class names" in words
  assert "largest difference of the logits and features after reading it again: 0" in words
  read = weights.read(tmp_path / name)
  families.assert_same_bits(read.params, families.params("vit"))
  assert read.card == CARD


def test_verify_finds_a_difference(source):
  model, changed = inference.read(source), families.params("vit")
  changed["head"]["bias"] = changed["head"]["bias"] + np.float32(2e-5)
  again = inference.of_weights(Weights(changed, model.card))
  with pytest.raises(ValueError, match=r"again: 2.*e-05, above 1e-05"):
    exporting.verify(model, again)


@pytest.mark.parametrize("family", ["vit", "gap", "bit"])
def test_verify_compares_features_of_weights_without_a_head(tmp_path, family):
  params = families.params(family)
  del params["head"]
  weights.write(tmp_path / "bare.npz", Weights(params, Card(image_size=16)))
  words = run("--source", tmp_path / "bare.npz", "--output", tmp_path / "out.npz", "--verify")
  assert "largest difference of the features (there is no head) after reading it again: 0" in words
  model = inference.read(tmp_path / "bare.npz")
  again = inference.of_weights(Weights(families.params(family, seed=1), model.card))
  with pytest.raises(ValueError, match=r"features \(there is no head\) .*, above 1e-05"):
    exporting.verify(model, again)


def test_verify_finds_a_difference_behind_a_head_of_zeros(tmp_path):
  params, changed = (families.params("vit", seed=seed) for seed in (0, 1))
  for one in (params, changed):
    one["head"] = {name: np.zeros_like(leaf) for name, leaf in one["head"].items()}
  models = [inference.of_weights(Weights(one, CARD)) for one in (params, changed)]
  with pytest.raises(ValueError, match=r"logits and features .*, above 1e-05"):
    exporting.verify(*models)


def test_what_other_readers_drop_is_told(tmp_path):
  weights.save(tmp_path / "source.npz", families.params("representation"))
  words = run("--source", tmp_path / "source.npz", "--output", tmp_path / "out.npz")
  assert "drop its representation layer without a warning" in words
  assert "Other readers" not in run(
    "--source", tmp_path / "source.npz", "--output", tmp_path / "o.msgpack"
  )


@pytest.mark.parametrize(("family", "lacking"), [("2d", "pos_embedding_column"), ("vit", "")])
def test_what_timm_cannot_read_is_told(tmp_path, family, lacking):
  weights.save(tmp_path / "source.npz", families.params(family))
  words = run("--source", tmp_path / "source.npz", "--output", tmp_path / "out.safetensors")
  assert (f"{lacking}. Its arrays have the published names" in words) == bool(lacking)
  families.assert_same_bits(weights.load(tmp_path / "out.safetensors"), families.params(family))


def test_another_json_file_is_not_overwritten(source, tmp_path):
  (tmp_path / "config.json").write_text('{"seed": 0}')
  with pytest.raises(ValueError, match=r"config\.json is not a model card"):
    run("--source", source, "--output", tmp_path / "config.npz")
  assert (tmp_path / "config.json").read_text() == '{"seed": 0}'


def test_weights_without_a_card_tell_their_image_size(tmp_path):
  weights.save(tmp_path / "bare.npz", families.params("vit"))
  words = run("--source", tmp_path / "bare.npz", "--output", tmp_path / "out.npz")
  assert "images of 16 px, no class names" in words
  assert json.loads((tmp_path / "out.json").read_text())["image_size"] == 16


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    (("--output", "x.npz", "--format", "msgpack"), r"no name for the format 'msgpack'"),
    (("--output", "x.onnx"), "no name for a format of weights"),
    (("--output", "x.npz", "--no-average"), "has no checkpoints to choose"),
    (("--output", "x.npz", "--step=7"), "has no checkpoints to choose"),
    (
      ("--output", "x-0.1", "--format", "huggingface"),
      "no name for the format 'huggingface'",
    ),
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


def test_as_a_process_one_sentence_and_a_status(source, tmp_path):
  weights.save(tmp_path / "gap.npz", families.params("gap"))
  tool = [sys.executable, "tools/export.py"]
  result = programs.run([*tool, "--source", tmp_path / "gap.npz", "--output", tmp_path / "hf"])
  assert result.returncode == 1
  assert result.stderr.startswith("export: Hugging Face's ViTForImageClassification has no place")
  assert len(result.stderr.splitlines()) == 1
  result = programs.run(
    [*tool, "--source", tmp_path / "gap.npz", "--step=7", "--output", tmp_path / "a.npz"]
  )
  assert result.returncode == 2
  assert "has no checkpoints to choose" in result.stderr
