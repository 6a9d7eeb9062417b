"""Masked patch prediction from the first step to a fine-tuned, exported model."""

import dataclasses
import json

import chex
import jax
import numpy as np
import pytest
from absl.testing import flagsaver
from PIL import Image

from tests import resolved
from tests.ends import assert_equal_ends, copy_as_stopped
from tests.seams.program import StopAfter
from vit_jax import config as c
from vit_jax import launch, main
from vit_jax.config import command_line
from vit_jax.data import sources
from vit_jax.evaluation import catalogue
from vit_jax.evaluation.classification import Classification
from vit_jax.evaluation.few_shot import FewShot
from vit_jax.evaluation.nearest_neighbours import Nearest
from vit_jax.extras.masked_patches import reconstruction
from vit_jax.extras.masked_patches.objective import Masked
from vit_jax.extras.masked_patches.reconstruction import Reconstruction
from vit_jax.inference import export
from vit_jax.inference import model as inference
from vit_jax.learning import objective as objectives
from vit_jax.learning.optimizers.adam import Adam
from vit_jax.storage import checkpoint, metrics_log
from vit_jax.storage.tree import flatten
from vit_jax.training import init_from
from vit_jax.training import run as runs

VIT = c.Model(name="ViT-Ti/2", depth=1, width=16, mlp_dim=16, heads=2, num_classes=10)
PAIR = dict(train=c.Dataset("digits", "train"), test=c.Dataset("digits", "test"))
MASKED = resolved.config(
  batch_size=32,
  duration=c.Duration(steps=6),
  log_every=c.Duration(steps=1),
  verify_every=2,
  evaluate_every=c.Duration(steps=3),
  checkpoint=c.Checkpoint(every=c.Duration(steps=3)),
  objective=Masked(),
  model=VIT,
  optimizer=Adam(weight_decay=0.1, ema=0.75),
  data=c.Data(train=c.Dataset("digits", "train", label_key=""), image_size=8),
  evaluate={
    "probe": FewShot(**PAIR, shots=(5,), seeds=1),
    "near": Nearest(**PAIR),
    "token": Nearest(**PAIR, representation="pre_logits"),
    "held": Reconstruction("digits", "test"),
  },
)


def run(folder, **settings):
  config = dataclasses.replace(MASKED, **settings)
  made = resolved.run(config, jax.devices()[:1])
  return launch.train(made, folder, StopAfter())


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
  folder = tmp_path_factory.mktemp("masked") / "run"
  assert run(folder)
  return folder


def test_a_stopped_run_goes_on_to_the_same_bits(pretrained, tmp_path, capsys):
  copy_as_stopped(pretrained, tmp_path / "parts", step=3)
  assert run(tmp_path / "parts")
  assert "Step 4 was computed twice" in capsys.readouterr().out
  assert_equal_ends(tmp_path / "parts", pretrained, step=6)


def test_what_a_user_sees(pretrained):
  lines = {}
  for line in metrics_log.read_lines(pretrained):
    lines |= line
  for name in ("training/accuracy", "training/accuracy_kept", "held/patch_constant_loss"):
    assert 0 <= lines[name] < np.log(512)
  of_held = lambda names: {name for name in names if name.startswith("held/")}
  assert of_held(lines) == of_held(catalogue.names(MASKED))  # any of which may stop a run early
  assert lines["near/20nn"] > 0.2
  assert lines["near/20nn"] != lines["token/20nn"]  # mean of the patches, class token
  pictures = sorted((pretrained / "pictures").rglob("*.png"))
  assert [path.name for path in pictures] == ["00000003.png", "00000006.png"]
  with Image.open(pictures[0]) as picture:
    assert picture.size == (3 * (96 + 8), 8 * (96 + 8))
  events = b"".join(path.read_bytes() for path in pretrained.glob("events.out.tfevents.*"))
  assert events.count(b"held/patches") == 2
  assert events.count(pictures[0].read_bytes()) == 1


def read_weights(config, names):
  objective = objectives.of_config(config)
  return init_from.read_initial(config, objective, names)


def test_fine_tuning_takes_all_but_what_the_objective_added(pretrained):
  names = tuple("0123456789")
  asked = resolved.config(init_from=str(pretrained), model=VIT, data=c.Data(image_size=8))
  started = read_weights(dataclasses.replace(asked, new_head=True), names)
  own = flatten(checkpoint.load_params(checkpoint.find(pretrained), ema=True))
  taken = flatten(started.params)
  added = ("mask_embedding", "prediction/bias", "prediction/kernel")
  assert own.keys() - taken.keys() == {f"objective/{name}" for name in added}
  chex.assert_trees_all_equal(taken, {name: own[name] for name in taken})
  assert "dropped  objective/mask_embedding" in started.report
  assert "new      head/kernel" in started.report
  with pytest.raises(c.ConfigError, match="have no head; take a new one with"):
    read_weights(asked, names)


def test_another_masked_run_goes_on_with_all_of_them(pretrained):
  again = read_weights(dataclasses.replace(MASKED, init_from=str(pretrained)), ())
  assert flatten(again.params).keys() >= {"objective/mask_embedding", "objective/prediction/kernel"}
  other = dataclasses.replace(MASKED, init_from=str(pretrained), objective=Masked(target="pixels"))
  report = read_weights(other, ()).report
  assert "new      objective/prediction/kernel" in report


@pytest.mark.parametrize("output", ["w.npz", "w.safetensors", "folder"])
def test_export_leaves_them_out_and_says_so(pretrained, tmp_path, output):
  model = inference.read_model(pretrained)
  lines = export.write(model, str(pretrained), tmp_path / output)
  assert any("objective/mask_embedding" in line for line in lines)
  again = inference.read_model(tmp_path / output)
  assert not again.has_head
  own = {k: v for k, v in flatten(model.read.params).items() if not k.startswith("objective/")}
  chex.assert_trees_all_equal(flatten(again.read.params), own)
  assert again.card.representation == "patches"


def evaluate(*words):
  """The exit status of the main program."""
  with flagsaver.flagsaver(), pytest.raises(SystemExit) as end:
    main.main(command_line.parse(["main", "--mode=evaluate", *words]))
  return end.value.code


@pytest.mark.usefixtures("one_device")
def test_evaluation_probes_the_same_representation_and_needs_no_head(pretrained):
  assert evaluate(f"--workdir={pretrained}") == 0
  found = json.loads((pretrained / "evaluation.json").read_text())
  last = [line for line in metrics_log.read_lines(pretrained) if "near/20nn" in line][-1]
  for name in ("near/20nn", "token/20nn", "probe/5shot"):
    assert found[name] == last[name]
  assert found["held/patch_loss"] == pytest.approx(last["held/patch_loss"])
  assert (pretrained / "evaluation" / "1" / "held" / "patches.png").is_file()
  metrics = json.loads((pretrained / "evaluation/1/held/metrics.json").read_text())
  assert metrics["dataset"] == "digits test"


def test_a_picture_of_masked_patches_shows_all_classes():
  held = dict(runs.open_data(MASKED).evaluations.evaluators)["held"]
  labels = sources.open_source("digits", split="test").labels
  assert len({labels(place) for place in held.places}) == reconstruction.SHOWN


@pytest.mark.usefixtures("one_device")
def test_what_needs_a_head_or_the_objective_is_refused(pretrained, tmp_path, capsys):
  suite = ["--config=configs/evaluate.py:own", f"--config.init_from={pretrained}"]
  data = ["--config.evaluate.own.source=digits", "--config.evaluate.own.split=test"]
  assert evaluate(*suite, *data, f"--workdir={tmp_path}") == 2
  assert "these weights have no head" in capsys.readouterr().err
  labelled = dataclasses.replace(MASKED.data, train=c.Dataset("digits", "train"))
  scored = {"val": Classification("digits", "test")}
  for changes, message in (
    (dict(objective=resolved.config().objective, data=labelled), "held predicts corrupted patches"),
    (
      dict(evaluate=scored),
      r"evaluate\.val scores the head, .* needs no head: few_shot, nearest_n",
    ),
  ):
    with pytest.raises(c.ConfigError, match=message):
      resolved.checked(dataclasses.replace(MASKED, **changes))
