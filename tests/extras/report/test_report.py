"""The page against the files that it is made of: numbers, texts, what is missing or hostile."""

import base64
import html
import itertools
import re
import shlex
import shutil
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from tests.extras.report import made_run
from tests.extras.report.made_run import LINES, NAMES, scored_line, step_line
from tests.extras.report.read_page import Page
from tests.programs import ROOT
from vit_jax.config import ConfigError, EarlyStopping
from vit_jax.evaluation import examples, results
from vit_jax.extras.masked_patches.objective import Masked
from vit_jax.extras.masked_patches.reconstruction import Reconstruction
from vit_jax.extras.report import cost, document, lead, outcome, report, reproduce, run
from vit_jax.extras.report.document import TableCell
from vit_jax.storage import checkpoint, workdir

METRICS, SPEED = "Metrics at the end", "Speed and computation"
HOSTILE = '<script>alert("x")</script>&amp;\x1b[2J\u202e$\\frac{1}{2}$'


def page(*folders, inside=False):
  return Page(report.html(folders, inside=inside))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
  """A run with everything that needs no device: its page, and what was scored."""
  folder = made_run.write(tmp_path_factory.mktemp("whole") / "run")
  scored = made_run.write_set(folder)
  return page(folder), scored


def test_metrics_are_those_of_the_files(whole):
  """The last ones: the best on a test set is no result."""
  found, _ = whole
  assert found.values[METRICS, "test top-1, %"] == [0.75, 100]
  assert found.values[METRICS, "test loss"] == [0.25, 100]
  assert found.values[METRICS, "training loss"] == [2 / 100, 100]
  assert found.tables[METRICS][1:][1:] == [
    ["test loss", "0.25", "100"],
    ["test top-1, %", "75.00", "100"],
  ]
  assert "87.5" not in found.text


def test_the_first_screen(whole):
  found, scored = whole
  assert "75.0% of 360 images\ntest top-1\n" in found.text
  assert "ViT-Ti/4 depth=1 width=16 mlp_dim=32 heads=2, 12,345 parameters" in found.text
  assert "digits train, 1,437 images, 3 classes, 16 px" in found.text
  assert "100 steps of 32 images" in found.text
  assert "1 min 43 s on 8 x TPU v3, 97% of it in steps" in found.text
  shown = [one["alt"] for one in found.pictures if "predicted" in one["alt"]]
  right = [bool(re.search(r"of (\w+), predicted \1 ", alt)) for alt in shown]
  kept = examples.chosen(*scored)
  labels, predictions, _ = scored
  assert right == sorted((labels == predictions)[kept], reverse=True)
  assert len(kept) == examples.KEPT
  assert 0 < sum(right) < examples.KEPT


def test_predictions_of_another_step_than_the_headline_say_so(tmp_path):
  folder = made_run.write(tmp_path / "run")
  made_run.write_set(folder, step=50, average=True, dataset="digits test")
  whose = "test: digits test, step 50, moving average of the parameters; "
  assert f"16 images of {whose}" in page(folder).text


@pytest.mark.parametrize(
  ("seconds", "words"),
  [
    (0, "0 s"),
    (59.6, "1 min 0 s"),
    (274, "4 min 34 s"),
    (11_520, "3 h 12 min"),
    (93_600, "1 d 2 h"),
  ],
)
def test_a_time_in_words(seconds, words):
  assert cost.spelled(seconds) == words


def test_the_headline_is_not_of_the_set_that_early_stopping_chose_by(tmp_path):
  lines = [line | {"val/top1": 0.9, "val/examples": 12} for line in LINES if "test/top1" in line]
  for metric, value in (("val/top1", "75.0% of 360"), ("test/top1", "90.0% of 12"), ("", "75.0%")):
    settings = made_run.replaced(early_stopping=EarlyStopping(metric=metric))
    folder = made_run.write(tmp_path / metric / "run", lines=lines, settings=settings)
    assert value in page(folder).text


def test_an_accuracy_is_of_the_images_with_a_label(tmp_path):
  lines = [line | {"test/labelled": 120} for line in LINES]
  assert "75.0% of 120 images" in page(made_run.write(tmp_path / "run", lines=lines)).text


@pytest.mark.parametrize(
  ("metric", "told"), [("test/top1", True), ("test/loss", True), ("", False)]
)
def test_the_best_evaluation_of_early_stopping_is_named(tmp_path, metric, told):
  """Figures at the end and details are not those of the checkpoint that was kept as the best."""
  settings = made_run.replaced(early_stopping=EarlyStopping(metric=metric))
  found = page(made_run.write(tmp_path / "run", settings=settings))
  said = f"Early stopping looks at {metric}: the best value"
  assert (said in found.text) == told
  assert ("after step 50, not at the end, after step 100." in found.text) == told
  risen = (made_run.scored_line(50, 0.5), made_run.scored_line(100, 0.75))
  assert said not in page(made_run.write(tmp_path / "risen", settings=settings, lines=risen)).text


def test_the_checkpoint_of_the_best_evaluation_is_named_if_it_is_kept(tmp_path):
  settings = made_run.replaced(early_stopping=EarlyStopping(metric="test/top1"))
  folder = made_run.write(tmp_path / "run", settings=settings)
  kept = folder / workdir.CHECKPOINTS / "50"
  kept.mkdir(parents=True)
  (kept / checkpoint.MANIFEST).write_text("{}")
  assert "after step 50 (checkpoints/50), not at the end, after step 100." in page(folder).text


def test_a_run_that_was_stopped_says_after_which_step_it_was_evaluated(tmp_path):
  lines = (*made_run.LINES, step_line(120))
  text = page(made_run.write(tmp_path / "run", lines=lines)).text
  assert "test top-1, after step 100 of 120" in text
  assert "120 of 100 steps" in text


def test_what_the_run_was(whole):
  rows = dict(row for row in whole[0].tables["The run"][1:])
  assert rows["Parameters"] == "12,345"
  assert rows["Notes on the data"] == "Left out of 'pets': 1 <hidden>."
  assert rows["Training data"] == "digits train"


def test_how_to_repeat_the_run(whole):
  rows = dict(row for row in whole[0].tables["Code and machine"][1:])
  assert rows["Seed"] == "0"
  assert rows["Python"] == "3.11.7"
  assert rows["JAX"] == "0.10.2"
  assert rows["Devices"] == "8 x TPU v3"
  assert rows["Git revision"] == "0123456789abcdef"
  arguments = "--config=configs/vit_digits.py --config.batch_size=32"
  assert f"python -m vit_jax.main {arguments}" in whole[0].text


def test_the_command_is_whole_and_for_a_shell():
  """As it was typed, with the variables that change numbers; a long one is not shortened."""
  words = ["train", "my photos", "--config.seed=$(1)", "x" * 5000]
  start = {
    "typed": ["/usr/bin/python", "/home/me/.venv/bin/vit-jax", *words],
    "variables": {"XLA_FLAGS": "--b=2 --a=1", "TPU_NAME": "mine"},
  }
  text = reproduce.in_words(start)
  assert shlex.split(text) == ["env", "XLA_FLAGS=--a=1 --b=2", "vit-jax", *words]
  section = document.Section("", commands=[text + "<b>"])
  assert html.unescape(section.shell[0]) == text + "<b>"
  assert "<b>" not in section.shell[0]
  module = {"typed": ["/usr/bin/python", "-m", "vit_jax.main", "--config=x"]}
  assert reproduce.in_words(module) == "python -m vit_jax.main --config=x"


@pytest.mark.parametrize("launcher", ["ipykernel_launcher", "colab_kernel_launcher"])
def test_a_notebook_has_no_command(launcher):
  words = ["-m", launcher, "-f", "/home/me/kernel-1.json"]
  start = {"typed": ["/usr/bin/python", *words], "command": [f"{launcher}.py", *words[2:]]}
  assert reproduce.in_words(start | {"variables": {"XLA_FLAGS": "--a=1"}}) == ""


def test_each_command_of_a_resumed_run_is_shown_once(tmp_path):
  folder = made_run.write(tmp_path / "run")
  for step, word in ((50, "a"), (70, "a"), (80, "b")):
    workdir.add_start(folder, {"step": step, "typed": ["python", "vit-jax", word]})
  (one,) = run.read_all([folder])
  first, *others = reproduce.commands_of(one)
  assert first.startswith("python -m vit_jax.main --config")
  assert others == ["# from step 50 on", "vit-jax a", "# from step 80 on", "vit-jax b"]


def test_steps_of_other_batch_sizes_tell_the_images_of_all(tmp_path):
  lines = [made_run.step_line(50), made_run.step_line(100, **{"data/images": 50 * 32 + 50 * 64})]
  (one,) = run.read_all([made_run.write(tmp_path / "run", lines=lines)])
  assert lead.training(one) == "100 steps with 4,800 images"


def test_what_the_run_cost(whole):
  found, _ = whole
  caption = "Time of all starts, up to the last line of metrics.jsonl"
  assert found.values[caption, "all"] == [103, 1]
  assert found.tables[caption][2] == ["steps", "0:01:40", "97.1"]
  assert found.values[SPEED, "Images per second, median"] == [395]
  assert found.values[SPEED, "Images seen"] == [3200]
  macs = found.values["The run", "GMACs of an image"][0] * 1e9
  assert f"{6 * macs * 3200 / 1e9:,.3g} gigaFLOPs" in found.text


@pytest.mark.parametrize(
  ("times", "total"),
  [
    ([(0.0, 10.0), (0.0, 20.0), (0.0, 4.0), (0.0, 8.0)], (20 + 3) + (8 + 3)),
    ([(3.0, 1.0), (3.0, 2.0), (9.0, 2.5), (9.0, 4.0)], (3 + 2 + 3) + (9 + 4 + 3)),
  ],
)
def test_each_start_counts_its_time_from_zero(tmp_path, times, total):
  """Also one that took longer to start up than the one before in all."""
  lines = [
    step_line(i, **{"time/start-up": start, "time/steps": steps})
    for i, (start, steps) in enumerate(times, 1)
  ]
  found = page(made_run.write(tmp_path / "run", lines=lines))
  key = "Time of all starts, up to the last line of metrics.jsonl"
  assert found.values[key, "all"] == [total, 1]
  assert f"{total} s" in found.text


def test_a_cause_that_the_last_start_lacks_counts(tmp_path):
  times = [{"time/start-up": 3.0, "time/save": 5.0}, {"time/start-up": 4.0}]
  lines = [step_line(step, **more) for step, more in enumerate(times, 1)]
  found = page(made_run.write(tmp_path / "run", lines=lines))
  key = "Time of all starts, up to the last line of metrics.jsonl"
  assert found.values[key, "save"][0] == 5
  assert found.values[key, "all"][0] == (3 + 5 + 1 + 3) + (4 + 2 + 3)


def test_details_are_those_that_were_scored(whole):
  found, (labels, predictions, probabilities) = whole
  for k, name in enumerate(NAMES):
    share = (predictions[labels == k] == k).mean()
    of_class = found.values["Accuracy of 3 classes, the lowest first", name]
    assert of_class == pytest.approx([share, (labels == k).sum()])
  matrix = [
    found.values["Images of each label (rows) by prediction (columns)", name] for name in NAMES
  ]
  np.testing.assert_array_equal(matrix, results.confusion(labels, predictions, 3))
  rows = found.tables["Wrong predictions with the highest probability"][1:]
  worst = examples.worst(labels, predictions, probabilities)
  assert [row[0] for row in rows] == [f"image {row}.png" for row in worst]
  (bins,) = (one["alt"] for one in found.pictures if one["alt"].startswith("Accuracy by mean"))
  assert sum(map(int, re.findall(r"of (\d+)", bins))) == len(labels)
  assert "Expected calibration error: 6.25%" in found.text


def test_worst_mistakes_are_wrong_and_the_surest():
  labels, predictions = np.array([0, 1, 2, 0]), np.array([0, 2, 1, 1])
  assert examples.worst(labels, predictions, np.array([1, 0.5, 0.9, 0.7])) == [2, 3, 1]


def test_the_page_can_be_heard(whole):
  """Text for every picture, headings in order, scopes, a language."""
  found, _ = whole
  assert ("html", {"lang": "en"}) in found.tags
  assert all(len(picture["alt"]) > 10 for picture in found.pictures)
  levels = [level for level, _ in found.headings]
  assert levels[0] == 1
  assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
  heads = [attributes for tag, attributes in found.tags if tag == "th"]
  assert {attributes["scope"] for attributes in heads} == {"col", "row"}
  alt = next(one["alt"] for one in found.pictures if one["alt"].startswith("Accuracy, test"))
  assert "from 0.875 at step 50 to 0.75 at step 100" in alt


def test_nothing_is_loaded_from_elsewhere(whole):
  found, _ = whole
  assert not {tag for tag, _ in found.tags} & {"script", "iframe", "object", "form"}
  policy = next(x["content"] for tag, x in found.tags if "http-equiv" in x)
  assert policy == "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
  places = [x.get("src") or x.get("href") for _, x in found.tags if {"src", "href"} & x.keys()]
  assert places
  assert all(place.startswith(("data:", "#")) for place in places)


def test_hostile_names_are_escaped(tmp_path):
  folder = made_run.write(
    tmp_path / "<b>&run", lines=[*made_run.LINES, {"step": 100, "<i>/top1": 0.5}]
  )
  made_run.write_set(folder, names=(HOSTILE, "_b", "c"), image=lambda row: f"<img src=x>{row}")
  workdir.add_start(folder, made_run.START | {"command": ["main.py", f"--config={HOSTILE}"]})
  text = report.html([folder], inside=False)
  found = Page(text)
  assert not {tag for tag, _ in found.tags} & {"script", "b", "i"}
  assert {picture["src"][:11] for picture in found.pictures} == {"data:image/"}
  assert '<script>alert("x")</script>&amp;\\x1b[2J\\u202e' in found.text
  assert "\x1b" not in text
  assert "\u202e" not in text
  assert "<img src=x>" in found.text
  for picture in found.pictures:  # what they are drawn of is well-formed too
    kind, data = picture["src"].split(";base64,")
    if kind.endswith("svg+xml"):
      ElementTree.fromstring(base64.b64decode(data).decode().replace("var(--ink)", "#000"))


@pytest.mark.parametrize("start", [None, {}, {"command": 3, "versions": [], "devices": "x"}])
def test_what_a_run_lacks_is_left_out(tmp_path, start):
  found = page(made_run.write(tmp_path / "run", lines=[], start=start))
  titles = [title for _, title in found.headings]
  assert titles == ["Run run", "Reproduce", "Settings"]
  assert "Devices" not in found.text
  assert found.pictures == []
  assert all(len(rows) > 1 for rows in found.tables.values())
  assert "None" not in found.text.replace("None,", "")


def test_several_runs_side_by_side(tmp_path):
  traced = dict(origins=(("batch_size", "a rule"),), derived=("batch_size",))
  other = made_run.replaced(seed=7, **traced)
  first = made_run.write(tmp_path / "a")
  second = made_run.write(tmp_path / "_b", lines=made_run.LINES[:2], settings=other, start=None)
  found = page(first, second)
  assert found.tables["Settings that differ"] == [["setting", "a", "_b"], ["seed", "0", "7"]]
  assert found.values[METRICS, "test top-1, %"] == [0.75, 0.875]
  overview = found.tables["At the end of each run"]
  assert overview[0] == ["run", "test top-1, %", "steps", "time, h:mm:ss", "gigaFLOPs"]
  assert overview[1][:4] == ["a", "75.00", "100", "0:01:43"]
  assert overview[2][:4] == ["_b", "87.50", "50", "0:00:53"]
  assert float(overview[1][4]) == pytest.approx(2 * float(overview[2][4]), rel=0.01)
  assert found.values[SPEED, "Images seen"] == [3200, 1600]
  rows = {row[0]: row[1:] for row in found.tables["The runs"][1:]}
  assert rows["Parameters"][0] == "12,345"
  assert ["Git revision", "0123456789abcdef", ""] in found.tables["Code and machine"]
  loss = next(one for one in found.pictures if one["alt"].startswith("Loss"))
  assert "a training: " in loss["alt"]
  svg = base64.b64decode(loss["src"].split(",")[1]).decode()
  assert "_b training" in svg  # a legend of Matplotlib leaves out names that begin with _


def test_several_runs_name_the_step_of_an_earlier_value(tmp_path):
  lines = [*made_run.LINES[:2], step_line(1200, loss=float("nan"))]
  stopped = made_run.write(tmp_path / "a", lines=[*lines, {"step": 1200, "test/loss": 0.5}])
  values = dict(outcome.last_values(run.read_run(stopped, "a")))
  assert values == {
    "test loss": TableCell("0.5", 0.5),
    "test top-1, %": TableCell("87.50 (step 50)", 0.875),
    "training loss": TableCell("0.04 (step 50)", 0.04),
  }


def test_runs_of_different_models_and_of_equal_names(tmp_path):
  model = made_run.replaced(model=made_run.replaced().model.__class__(name="R50x1", num_classes=3))
  paths = [tmp_path / "x/run", tmp_path / "y/run"]
  found = page(made_run.write(paths[0]), made_run.write(paths[1], settings=model))
  assert found.tables["Settings that differ"][0] == ["setting", *map(str, paths)]
  row = next(row for row in found.tables["Settings that differ"] if row[0] == "model.name")
  assert row == ["model.name", "'ViT-Ti/4'", "'R50x1'"]
  paper = "exaFLOPs in the paper (Table 6): 7 epochs of JFT-300M at 224 px"
  assert found.values[SPEED, paper] == [50]


def test_masked_patches_and_pictures_of_an_evaluation(tmp_path):
  settings = made_run.replaced(objective=Masked(), evaluate={"held": Reconstruction("digits")})
  lines = [step_line(5), {"step": 5, "held/patch_loss": 0.5, "held/accuracy": 0.25}, step_line(9)]
  folder = made_run.write(tmp_path / "run", settings=settings, lines=lines)
  made_run.write_set(folder, set_name="other")
  (folder / "evaluation/1/held").mkdir()
  shutil.copy(ROOT / "docs/images/digits_confusion.png", folder / "evaluation/1/held/patches.png")
  found = page(folder)
  assert "0.5 \nheld patch loss, after step 5 of 9" in found.text
  assert "patches of held, drawn by the evaluation." in [one["alt"] for one in found.pictures]
  assert found.values[METRICS, "held patch loss"] == [0.5, 5]


def test_large_runs_stay_small_pages(tmp_path):
  """Thousands of lines, 1,000 classes, several runs."""
  names = [f"class number {i} with a long name" for i in range(1000)]
  folders = [tmp_path / name for name in "abc"]
  for folder in folders:
    lines = [step_line(i, loss=1 + np.sin(i) / i) for i in range(1, 4000)]
    made_run.write(folder, lines=lines)
    made_run.write_set(folder, names=names, count=5000)
  text = report.html(folders, inside=False)
  assert len(text.encode()) < 3e6
  found = Page(text)
  caption = next(one for one in found.tables if one.startswith("Accuracy of"))
  assert caption.endswith("the lowest first: the 20 lowest and the 20 highest")
  assert len(found.tables[caption]) == 3 * 41


def test_what_is_no_workdir(tmp_path):
  folder = made_run.write(tmp_path / "run")
  for folders, message in (
    ([tmp_path / "none"], "is no folder"),
    ([tmp_path], "it has neither"),
    ([folder, folder], "given twice"),
    ([folder] * 41, "41 workdirs are too many"),
  ):
    with pytest.raises(ConfigError, match=message):
      report.html(folders, inside=False)


def test_starts_survive_damage(tmp_path):
  assert workdir.read_starts(tmp_path) == []
  workdir.add_start(tmp_path, {"step": 0})
  with (tmp_path / workdir.STARTS).open("ab") as file:
    file.write(b'{"step"\n\xff\n')
  workdir.add_start(tmp_path, {"step": 5})
  assert workdir.read_starts(tmp_path) == [{"step": 0}, {"step": 5}]


def test_every_evaluation_says_which_images_and_parameters_it_is_of(tmp_path):
  """The same run scored with an average, with its own parameters, and on other images.

  Of the same images with the same parameters, another result stays, and the same one does not.
  """
  folder = made_run.write(tmp_path / "run", lines=(*LINES, scored_line(100, 0.5) | {"average": 1}))
  of_average = "digits test, step 100, moving average of the parameters"
  made = {
    of_average: dict(dataset="digits test", average=True, top1=0.5),
    "digits test, step 100": dict(dataset="digits test", average=False, top1=0.75),
    "photos [90%:], step 100": dict(dataset="photos [90%:]", average=False, top1=0.25),
  }
  written = [*made, of_average, of_average]
  for number, (whose, loss) in enumerate(zip(written, (1, 1, 1, 2, 2), strict=True), 1):
    made_run.write_set(folder, number=number, loss=float(loss), examples=60, **made[whose])
  text = " ".join(page(folder).text.split())
  shown = {f"{written[n - 1]}, evaluation/{n}": made[written[n - 1]] for n in (5, 3, 2, 1)}
  scores = [
    f"{whose}. test: top-1 {metrics['top1']:.2%}, loss {1 + whose.endswith('5')}.0000 on 60 images"
    for whose, metrics in shown.items()
  ]
  places = [text.index(f"Evaluation test {score}") for score in scores]
  assert places == sorted(places)
  assert text.count("Evaluation test") == len(places)
  assert "50.0% of 360 images test top-1, moving average of the parameters" in text
