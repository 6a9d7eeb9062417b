"""The main job as a user runs it: what it writes, evaluates, counts and refuses. Real processes."""

import csv
import dataclasses
import json
import re

import jax
import numpy as np
import pytest
from PIL import Image
from sklearn.metrics import precision_recall_fscore_support

from tests import programs
from tests.weights import families
from vit_jax import weights
from vit_jax.extras.commands import export
from vit_jax.storage import checkpoint, metrics_log
from vit_jax.storage import workdir as workdirs
from vit_jax.storage.tree import flatten
from vit_jax.training import speed

MADE_WITH = (
  "--config.report=True",
  "--config.optimizer.ema=0.9",
  "--config.data.evaluate_resize=20",
  "--config.profile.first_step=3",
  "--config.profile.steps=2",
)
CAUSES = *speed.CAUSES, "profile"  # of this run


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
  """A finished run on the digits: its workdir and what it printed."""
  workdir = tmp_path_factory.mktemp("digits")
  result = programs.run(programs.digits(workdir, *MADE_WITH))
  assert result.returncode == 0, result.stderr
  assert "Traceback" not in result.stderr
  return workdir, result.stdout


def test_what_the_user_sees(digits):
  workdir, output = digits
  spent = re.search(r"^Time:       0:0\d:\d\d: (.*)$", output, re.M)[1].split(", ")
  assert [share.split("% ")[1] for share in spent] == ["steps", *CAUSES, "idle"]
  assert sum(int(share.split("%")[0]) for share in spent) == pytest.approx(100, abs=5)  # rounded
  for words in (
    *("step 40/40", "images/s  ETA 0:00:00", "Result:     test: top-1"),
    *("checkpoints/40", "metrics.jsonl", "curves.png", "vit-jax export"),
  ):
    assert words in output
  for file in ("config.json", "metrics.jsonl", "curves.png", "checkpoints/40/manifest.json"):
    assert (workdir / file).stat().st_size > 100
  assert (workdir / "curves.png").read_bytes().startswith(b"\x89PNG")
  assert list(workdir.glob("events.out.tfevents*"))
  assert "Profile of 2 steps" in output
  assert list((workdir / "profile").rglob("*.xplane.pb"))
  table = (workdir / "parameters.txt").read_text()
  names = {line.split("|")[1].strip() for line in table.splitlines() if "|" in line}
  assert names > flatten(weights.load(workdir)).keys()


METRICS = (
  "step loss training/accuracy batch/loss batch/accuracy learning_rate grad_norm param_norm "
  "update_norm images_per_second step_seconds eta_seconds data/input_wait data/images data/epoch "
  "data/bad_examples skipped goodput"
)


def test_every_line_has_all_metrics(digits):
  every = metrics_log.read_lines(digits[0])
  lines = [line for line in every if "loss" in line]
  assert [line["step"] for line in lines] == list(range(4, 41, 4))
  wanted = {*METRICS.split(), *(f"time/{cause}" for cause in ("steps", *CAUSES, "idle"))}
  assert all(line.keys() == wanted for line in lines)
  assert lines[-1]["data/images"] == 40 * 32
  assert lines[-1]["data/epoch"] == pytest.approx(40 * 32 / 1437)
  assert lines[-1]["loss"] < lines[0]["loss"]
  scored = [line for line in every if "test/top1" in line]
  assert [line["step"] for line in scored] == [20, 40]
  assert {line["test/examples"] for line in scored} == {360}
  right = scored[-1]["test/top1"] * 360
  assert right == pytest.approx(round(right))


def scored(folder, *arguments, devices=1):
  """The metrics of an evaluation, and its output."""
  command = [*programs.MAIN, "--mode=evaluate", f"--workdir={folder}", *arguments]
  result = programs.run(command, devices=devices)
  assert result.returncode == 0, result.stderr
  return json.loads((folder / "evaluation.json").read_text()), result.stdout


def shuffled(read):
  """The same weights with the outputs of the head in another order, and their names with them."""
  order = np.roll(np.arange(10), 3)
  head = {name: array[..., order] for name, array in read.params["head"].items()}
  names = tuple(read.card.class_names[i] for i in order)
  card = dataclasses.replace(read.card, class_names=names)
  return weights.Weights(read.params | {"head": head}, card)


OWN = (
  "--config=configs/evaluate.py:own",
  "--config.evaluate.own.source=digits",
  "--config.evaluate.own.split=test",
  "--config.batch_size=32",
)


def assert_scores_of_classes(metrics, folder):
  """Metrics and classes.csv have the precision, recall and F1 of predictions.csv."""
  rows, classes = (
    list(csv.DictReader((folder / f"{name}.csv").read_text().splitlines()))
    for name in ("predictions", "classes")
  )
  labels, predictions = ([row[key] for row in rows] for key in ("label", "prediction"))
  names = ("precision", "recall", "f1")
  for average, found in (
    ("macro", [metrics[f"test/macro_{name}"] for name in names]),
    (None, [[float(row[name]) for row in classes] for name in names]),
  ):
    expected = precision_recall_fscore_support(
      labels, predictions, average=average, zero_division=0
    )[:3]
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_any_way_to_evaluate_a_run_gives_the_metrics_of_its_own_evaluation(digits, tmp_path):
  """The command names no setting: model, classes, loss, average and sizes are those of the run."""
  workdir, _ = digits
  *_, inside = [line for line in metrics_log.read_lines(workdir) if "test/top1" in line]
  inside.pop("step")
  own = {key.replace("test/", "own/"): value for key, value in inside.items()}
  alone, _ = scored(workdir)
  assert alone == inside | {"step": 40}
  assert_scores_of_classes(alone, workdirs.details(workdir)[0])
  raw, said = scored(workdir, "--raw-params", "--config.data.evaluate_resize=0")
  assert raw["test/loss"] != pytest.approx(inside["test/loss"], rel=1e-3)
  assert (raw["average"], "moving average" in said) == (False, False)
  on_others = "--config.batch_size=56", "--config.mesh.fsdp=2"
  split, _ = scored(workdir, *on_others, devices=8)
  assert split == {key: pytest.approx(value, rel=1e-5) for key, value in alone.items()}
  by_workdir, said = scored(workdir, *OWN)
  assert by_workdir == own | {"step": 40}
  assert "ViT, images smaller side to 20 px, centre of 16 px; classes: those of the data" in said
  elsewhere, _ = scored(tmp_path / "from", *OWN, f"--config.init_from={workdir}")
  assert elsewhere == own | {"weights": str(workdir)}
  assert "moving average of the parameters: ViT, images" in said
  weights.write(tmp_path / "w.npz", shuffled(weights.read(workdir)))
  card = [*OWN, f"--config.init_from={tmp_path / 'w.npz'}"]
  by_card, said = scored(tmp_path / "card", *card)
  expected = {key: pytest.approx(value, rel=1e-5) for key, value in own.items()}
  assert by_card == expected | {"weights": str(tmp_path / "w.npz")}
  assert f"weights {tmp_path / 'w.npz'}, moving average of the parameters: ViT" in said  # the card
  again = [*OWN, f"--config.init_from={workdir}", "--config.model.scan=True"]
  stacked, _ = scored(tmp_path / "from", *again)
  assert stacked["own/top1"] == own["own/top1"]
  assert stacked["own/loss"] == pytest.approx(own["own/loss"], rel=1e-5)
  with Image.open(tmp_path / "card/evaluation/1/own/confusion.png") as image:
    assert min(image.size) > 400


@pytest.mark.parametrize(("flags", "ema"), [((), True), (("--raw-params",), False)])
def test_export_gives_the_bits_of_the_checkpoint(digits, tmp_path, capsys, flags, ema):
  output = tmp_path / "params.msgpack"
  export.main(["--source", str(digits[0]), "--output", str(output), *flags])
  assert ("moving average" in capsys.readouterr().out) == ema
  exported = weights.load(output)
  stored = checkpoint.load_params(checkpoint.find(digits[0]), ema=ema)
  families.assert_same_bits(exported, stored)


def test_an_update_that_overflows_ends_the_run_whatever_is_asked_for(tmp_path):
  result = programs.run(
    programs.digits(
      tmp_path,
      "--config.schedule.learning_rate=1e37",
      "--config.optimizer.clip_norm=0",
      "--config.non_finite.action=skip",
      "--config.checkpoint.every.steps=1",
    )
  )
  assert result.returncode == 1
  assert "update norm inf" in result.stderr
  stored = [checkpoint.load_params(checkpoint.find(tmp_path), ema=ema) for ema in (False, True)]
  assert all(np.isfinite(x).all() for x in jax.tree.leaves(stored))
