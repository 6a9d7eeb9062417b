"""--model-card of tools/export.py: a README.md that the Hugging Face Hub can read."""

import shutil

import numpy as np
import pytest
import yaml

from tests import modules
from tests.weights import families
from vit_jax import weights
from vit_jax.config import ConfigError
from vit_jax.extras.commands import export
from vit_jax.weights import Weights
from vit_jax.weights.card import Card


def run(*arguments):
  return export.export(export.flags().parse_args([str(a) for a in arguments]))


def header_and_text(path):
  before, header, text = path.read_text().split("---\n", 2)
  assert not before
  return yaml.safe_load(header), text


def test_the_card_of_a_run_has_its_data_and_metrics(tiny_run, tmp_path):
  words = run("--source", tiny_run, "--output", tmp_path / "digits.npz", "--model-card")
  assert f"{tmp_path / 'README.md'}: a model card" in words
  header, text = header_and_text(tmp_path / "README.md")
  assert header == {
    "library_name": "vit_jax",
    "pipeline_tag": "image-classification",
    "tags": ["vit_jax"],
  }
  assert "\n# digits\n" in text
  assert "- Images that it, or a teacher, was trained on: digits train" in text
  assert "360 images (moving average of the parameters), after 5 steps\n" in text
  assert str(tiny_run) not in text


def test_metrics_of_other_parameters_are_not_given(tiny_run, tmp_path):
  options = ("--raw-params", "--model-card")
  run("--source", tiny_run, "--output", tmp_path / "digits.npz", *options)
  assert "- Evaluated: unknown\n" in (tmp_path / "README.md").read_text()


def test_metrics_are_those_of_the_step_that_could_be_read(tiny_run, tmp_path):
  """Behind a damaged checkpoint, the one before is exported."""
  folder = tmp_path / "run"
  shutil.copytree(tiny_run, folder)
  shutil.copytree(folder / "checkpoints" / "5", folder / "checkpoints" / "9")
  (folder / "checkpoints" / "9" / "state").rename(folder / "checkpoints" / "9" / "gone")
  words = run("--source", folder, "--output", tmp_path / "digits.npz", "--model-card")
  assert f"of {folder} after step 5; images" in words
  assert ", after 5 steps\n" in (tmp_path / "README.md").read_text()


@pytest.fixture
def source(tmp_path):
  card = Card(image_size=16, class_names=tuple("abcde"), resampling="pillow_bicubic")
  weights.write(tmp_path / "source.npz", Weights(families.params("vit"), card))
  return tmp_path / "source.npz"


def test_in_a_folder_the_notes_of_the_format_follow(source, tmp_path):
  arguments = ("--source", source, "--output", tmp_path / "hub", "--format", "huggingface")
  run(*arguments)
  notes = (tmp_path / "hub" / "README.md").read_text()
  run(*arguments, "--model-card")
  header, text = header_and_text(tmp_path / "hub" / "README.md")
  assert header["library_name"] == "transformers"
  assert text.endswith(f"\n\n{notes}")
  assert "- Images: resize: 16 x 16 px, pillow_bicubic; RGB" in text
  with pytest.raises(ConfigError, match="does not replace"):
    run(*arguments, "--model-card")


def test_other_channels_than_rgb_are_counted(tmp_path):
  module = families.module("vit", channels=13)
  params = modules.parameters(module, np.zeros((1, 16, 16, 13), np.float32), train=False)
  weights.save(tmp_path / "source.npz", params, module)
  arguments = ("--source", tmp_path / "source.npz", "--output", tmp_path / "out.npz")
  run(*arguments, "--model-card")
  text = (tmp_path / "README.md").read_text()
  assert "without antialiasing; channels: 13, (pixel - 127.5) / 127.5, which" in text


def test_a_file_of_the_user_is_not_replaced(source, tmp_path):
  (tmp_path / "README.md").write_text("mine")
  with pytest.raises(ConfigError, match=r"--model-card does not replace .*README\.md"):
    run("--source", source, "--output", tmp_path / "out.npz", "--model-card")
  assert (tmp_path / "README.md").read_text() == "mine"
  assert not (tmp_path / "out.npz").exists()
