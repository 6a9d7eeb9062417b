"""The report that a run writes at its end, and what the tool adds: one small run on the digits."""

import contextlib
import csv
import dataclasses
import io
import json
import re
import shutil
import types

import numpy as np
import pytest
from PIL import Image

from tests import programs, resolved
from tests.extras.report.read_page import Page
from vit_jax.config import recorded
from vit_jax.data import datasets
from vit_jax.evaluation import examples
from vit_jax.extras.commands import report as tool
from vit_jax.extras.report import inside, predictions, report, run, thumbnails
from vit_jax.storage import metrics_log
from vit_jax.storage import workdir as workdirs

STEPS = 12


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
  """A finished run: its workdir and what it printed."""
  workdir = tmp_path_factory.mktemp("digits")
  lengths = {"duration": STEPS, "evaluate_every": STEPS, "checkpoint.every": STEPS}
  steps = [f"--config.{key}.steps={value}" for key, value in lengths.items()]
  done = programs.run(programs.digits(workdir, *steps, "--config.report=True"))
  assert done.returncode == 0, done.stderr
  return workdir, done.stdout


def test_a_run_writes_its_report(digits):
  workdir, output = digits
  assert f"Report:     {workdir}/report.html (open it in a browser)" in output
  found = Page((workdir / report.REPORT).read_text())
  last = {key: x for line in metrics_log.read_lines(workdir) for key, x in line.items()}
  assert found.values["Metrics at the end", "test top-1, %"] == [last["test/top1"], STEPS]
  assert f"{last['test/top1']:.1%} of 360 images" in found.text
  assert f"{STEPS} steps of " in found.text
  assert sum("predicted" in picture["alt"] for picture in found.pictures) == examples.KEPT
  assert [title for level, title in found.headings if level == 2] == [
    "Results",
    "Curves",
    "Cost",
    "Training images",
    "Reproduce",
    "Settings",
  ]


def test_the_start_is_recorded(digits):
  (start,) = workdirs.read_starts(digits[0])
  assert start["step"] == 0
  assert start["steps"] == STEPS
  assert start["batch_size"] == recorded.read_config(digits[0]).batch_size
  assert "--config=configs/vit_digits.py" in start["command"]
  assert start["typed"]
  assert start["training_images"] == 1437
  assert start["classes"] == 10
  assert start["versions"]["jax"]
  with (digits[0] / workdirs.IMAGES / workdirs.CLASSES).open(newline="") as file:
    classes = [row["classes"] for row in csv.DictReader(file)]
  images = [Image.open(digits[0] / workdirs.IMAGES / f"{i}.png") for i in range(len(classes))]
  assert {image.size for image in images} == {(16, 16)}
  assert len({image.tobytes() for image in images}) == len(classes) == 8
  assert {*classes} <= set("0123456789")
  assert start["parameters"] == start["trained_parameters"] > 1000


def test_details_are_those_of_the_last_evaluation(digits):
  workdir = digits[0]
  folder = workdir / "evaluation/1/test"
  metrics = json.loads((folder / "metrics.json").read_text())
  line = metrics_log.read_lines(workdir)[-1]
  assert metrics == {"dataset": "digits test (16 x 16 px)"} | {
    k.removeprefix("test/"): x for k, x in line.items()
  }
  with (folder / "predictions.csv").open(newline="") as file:
    rows = list(csv.DictReader(file))
  right = np.mean([row["label"] == row["prediction"] for row in rows])
  assert right == pytest.approx(line["test/top1"])
  config = recorded.read_config(workdir)
  source = datasets.opener_of(config.data).labelled("x", config.evaluate["test"]).source
  columns = [np.array([row[key] for row in rows]) for key in ("label", "prediction")]
  kept = examples.chosen(*columns, np.array([float(row["probability"]) for row in rows]))
  assert {int(path.stem) for path in (folder / "images").iterdir()} == set(kept)
  shown = np.asarray(Image.open(folder / f"images/{kept[-1]}.png"))
  assert np.abs(shown[::2, ::2].astype(int) - source[kept[-1]].image[..., None]).mean() < 40


def test_the_tool_looks_inside(digits, tmp_path, capsys):
  tool.main([str(digits[0]), "--output", str(tmp_path / "new/r.html")])
  assert "open it in a browser" in capsys.readouterr().out
  found = Page((tmp_path / "new/r.html").read_text())
  assert "Inside the model" in [title for _, title in found.headings]
  assert f"The checkpoint after step {STEPS}, moving average of the parameters." in found.text
  assert "Mean attention distance of every head, over 16 images of test: digits test" in found.text
  shown = [picture["src"][:15] for picture in found.pictures if "predicted" in picture["alt"]]
  assert shown == ["data:image/jpeg"] * examples.KEPT
  assert "The more orange a part, the more attention" in found.text


def test_attention_is_shown_of_the_parameters_that_were_scored(digits):
  """Not over predictions of another checkpoint, or of the parameters without their average."""
  (one,) = run.read_all([digits[0]])
  opened = inside.opened(one)
  scored = predictions.set_of(one)
  first = predictions.rows_of(scored)[:1]
  (tinted,) = inside.overlays(opened, scored, first).values()
  plain = thumbnails.scaled(thumbnails.rgb(scored.images[first[0]]))
  drawn = np.asarray(Image.open(io.BytesIO(tinted))).astype(int)
  assert (drawn[..., 0] - drawn[..., 2]).max() > 100  # orange
  assert drawn.shape == np.asarray(plain).shape
  for other in ({"step": STEPS - 1}, {"average": False}):
    changed = dataclasses.replace(scored, metrics=scored.metrics | other)
    assert inside.overlays(opened, changed, first) == {}


def test_the_step_is_that_of_the_checkpoint_that_was_read(digits, tmp_path):
  folder = shutil.copytree(digits[0], tmp_path / "run")
  newest = shutil.copytree(folder / "checkpoints" / str(STEPS), folder / "checkpoints/9999")
  (newest / "manifest.json").write_text("{}")
  (one,) = run.read_all([folder])
  section = inside.section(one, inside.opened(one), "")
  assert section.words == [f"The checkpoint after step {STEPS}, moving average of the parameters."]
  assert len(section.pictures) == 3


@pytest.mark.parametrize("damaged", ["evaluation/*/*/images/*.png", "checkpoints/*/state/d/*"])
def test_what_is_damaged_is_no_end_of_the_report(digits, tmp_path, damaged):
  """Also a wrong checksum in a PNG file, for which Pillow raises a SyntaxError."""
  folder = shutil.copytree(digits[0], tmp_path / "run")
  for path in folder.glob(damaged):
    data = bytearray(path.read_bytes())
    place = data.find(b"IHDR") + 4 + 13  # the checksum after width, height and three bytes
    data[place] ^= 1
    path.write_bytes(data)
  (one,) = run.read_all([folder])
  section = inside.section(one, inside.opened(one), "")
  assert section.words[0].startswith("The newest checkpoint cannot be looked into:")
  assert not section.pictures
  assert report.html([folder], inside=True)


def test_a_report_that_cannot_be_written_is_a_warning(tmp_path):
  lines = []
  session = types.SimpleNamespace(
    folder=tmp_path,
    writer=types.SimpleNamespace(say=lines.append),
    monitor=types.SimpleNamespace(paused=lambda _: contextlib.nullcontext()),
  )
  run = types.SimpleNamespace(config=resolved.config())
  report.Report(run, session).end(types.SimpleNamespace(stopping=True))  # it goes on later
  assert not list(tmp_path.iterdir())
  report.Report(run, session).end(types.SimpleNamespace(stopping=False))
  assert [path.name for path in tmp_path.iterdir()] == ["curves.png"]
  assert re.search(r"cannot be written \(ConfigError: .*\). The run itself is complete.", lines[0])
