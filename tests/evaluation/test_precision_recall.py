"""Precision, recall, F1 and average precision are those of scikit-learn."""

import contextlib
import dataclasses
import functools
import types

import numpy as np
import pytest
from PIL import Image
from sklearn import metrics as sk

from tests import resolved
from tests.data.numbered import Listed
from tests.evaluation import test_classification as logits_of_table
from tests.evaluation.miniatures import MODEL, SIDE, evaluated, parameters, seen
from tests.tiny_run import CONFIG
from vit_jax import config as c
from vit_jax import weights
from vit_jax.data.datasets import NamedDataset
from vit_jax.data.sources import Example
from vit_jax.evaluation import catalogue, classification, precision_recall
from vit_jax.evaluation.classification import MACRO, Classification, LabelledSet
from vit_jax.evaluation.evaluations import Evaluations
from vit_jax.training import run as runs
from vit_jax.weights.card import Card

CLASSES = 9


def drawn(seed, count=100):
  """Labels without the last class, and predictions without the last but one."""
  rng = np.random.default_rng(seed)
  labels = rng.integers(0, CLASSES - 1, count)
  predictions = np.where(rng.random(count) < 0.5, labels, rng.integers(0, CLASSES, count))
  predictions[predictions == CLASSES - 2] = 0
  return labels.astype(np.int32), predictions


def counts_of(labels, predictions):
  hits = labels[labels == predictions]
  return [np.bincount(each, minlength=CLASSES) for each in (labels, predictions, hits)]


@pytest.mark.parametrize("seed", range(3))
def test_each_class(seed):
  labels, predictions = drawn(seed)
  expected = sk.precision_recall_fscore_support(
    labels, predictions, labels=range(CLASSES), zero_division=0
  )
  found = precision_recall.of_classes(*counts_of(labels, predictions))
  np.testing.assert_allclose(found, expected[:3], rtol=1e-12)
  assert (found[:, -2:] == 0).all()


@pytest.mark.parametrize("count", [100, 5])
def test_means_over_the_classes_that_occur(count):
  """Of five images, some classes are neither labels nor predictions; padding does not count."""
  labels, predictions = drawn(3, count)
  result = logits_of_table.evaluate(np.eye(CLASSES)[predictions], labels, 7)
  expected = sk.precision_recall_fscore_support(
    labels, predictions, average="macro", zero_division=0
  )
  assert [result[name] for name in MACRO] == pytest.approx(expected[:3], rel=1e-12)


def test_no_means_among_some_classes_or_of_several_labels():
  labels, predictions = drawn(4)
  logits = np.eye(CLASSES)[predictions]
  some = logits_of_table.evaluate(logits, labels, 64, classes=tuple(range(CLASSES - 1)))
  several = logits_of_table.evaluate(logits, np.eye(CLASSES, dtype=np.uint8)[labels], 64)
  assert not {*MACRO} & {*some, *several}


def several_labels(seed, levels):
  """Scores with ties, and labels: those of one class are nowhere, some images have none."""
  rng = np.random.default_rng(seed)
  logits = rng.integers(0, levels, (90, CLASSES)) / 4 - 1
  labels = (rng.random((90, CLASSES)) < 0.2).astype(np.uint8)
  labels[:, 4] = 0
  labels[:10] = 0
  return logits.astype(np.float32), labels


@pytest.mark.parametrize("levels", [2, 5, 10**6])
def test_average_precision_of_scores_with_ties(levels):
  """Also through the compiled step, in padded batches; images without a label count."""
  logits, labels = several_labels(levels, levels)
  known = [k for k in range(CLASSES) if labels[:, k].any()]
  assert len(known) == CLASSES - 1
  expected = sk.average_precision_score(labels[:, known], logits[:, known], average=None)
  for k, value in zip(known, expected, strict=True):
    found = precision_recall.average_precision(logits[:, k], labels[:, k] > 0)
    assert found == pytest.approx(value, rel=1e-12)
  scores = precision_recall.Scores(len(labels), CLASSES)
  step = functools.partial(logits_of_table.step_of("sigmoid"), ranked=True)
  batches = logits_of_table.batches(labels, 64)
  table = logits_of_table.table_of(logits)
  result = classification.evaluate(step, table, batches, keep=scores.add)
  assert scores.mean_average_precision() == pytest.approx(expected.mean(), rel=1e-12)
  assert (result["examples"], result["labelled"]) == (len(labels), labels.any(axis=1).sum())
  said = Classification.in_words("top1", result | {"map": 0.5})
  assert said.startswith(
    f"top-1 {result['top1']:.2%}, top-5 {result['top5']:.2%}, mAP 50.00%, loss"
  )


def test_a_head_with_a_sigmoid_is_scored_by_its_logits(tmp_path, capsys, monkeypatch):
  """Beyond the limit of memory, a note tells why the metric is missing."""
  names = ("ant", "bee", "cow")
  rng = np.random.default_rng(0)
  pixels = [rng.integers(0, 256, (SIDE, SIDE, 3), np.uint8) for _ in range(11)]
  labels = rng.random((11, 3)) < 0.4
  lines = ["path,label"]
  for i, (image, row) in enumerate(zip(pixels, labels, strict=True)):
    Image.fromarray(image).save(tmp_path / f"{i}.png")
    lines.append(f"{i}.png,{'|'.join(np.array(names)[row])}")
  (tmp_path / "list.csv").write_text("\n".join(lines))
  module, params = parameters(3)
  card = Card(image_size=SIDE, class_names=names, loss="sigmoid")
  weights.write(tmp_path / "w.npz", weights.Weights(params, card))
  config = resolved.evaluation(
    init_from=str(tmp_path / "w.npz"),
    batch_size=8,
    model=MODEL,
    data=c.Data(image_size=SIDE),
    evaluate={"own": Classification(f"csv:{tmp_path}/list.csv")},
  )
  logits, _ = seen(module, params, pixels)
  found = evaluated(config, tmp_path / "run")
  expected = sk.average_precision_score(labels, logits.astype(np.float32), average="macro")
  assert found["own/map"] == pytest.approx(expected, rel=1e-6)
  assert "no map" not in capsys.readouterr().out
  others = {"top1": 0.5, "loss": 1.0, "examples": 11}
  monkeypatch.setattr(LabelledSet, "_evaluated", lambda *_: others)  # compiles nothing again
  monkeypatch.setattr(precision_recall, "MAX_SCORES", 32)
  assert evaluated(config, tmp_path / "run").keys() == {f"own/{name}" for name in others}
  assert "own: no map: 11 images times 3 classes are more than 32 scores" in capsys.readouterr().out


# --- which metrics a set has ---


def opened(*, several):
  """A set of two images of ten classes."""
  examples = [Example(np.zeros((8, 8, 3), np.uint8), (label,), f"{label}") for label in (3, 5)]
  named = NamedDataset(
    "config.evaluate.val", Classification(), Listed(examples, multi_label=several)
  )
  return Evaluations((("val", LabelledSet(named, None)),))


def test_a_run_cannot_be_stopped_by_a_metric_that_its_labels_do_not_give(monkeypatch):
  of_one = ("ece", "macro_f1")
  for several, given, missing in ((True, ("map",), of_one), (False, of_one, ("map",))):
    evaluations = opened(several=several)
    for metric in given:
      runs.check_stopping(f"val/{metric}", evaluations)
    runs.check_stopping("", evaluations)
    for metric in missing:
      with pytest.raises(c.ConfigError, match=rf"metric='val/{metric}' .*label.*such as val/top1"):
        runs.check_stopping(f"val/{metric}", evaluations)
  monkeypatch.setattr(precision_recall, "MAX_SCORES", 19)
  with pytest.raises(c.ConfigError, match="2 images times 10 classes are more than 19 scores"):
    runs.check_stopping("val/map", opened(several=True))


def test_a_run_looks_at_the_labels_before_it_starts():
  stop = c.EarlyStopping(metric="test/map")
  config = dataclasses.replace(CONFIG, loss=c.Loss(kind="sigmoid"), early_stopping=stop)
  with pytest.raises(c.ConfigError, match=r"test/map' is not given, as its images have one label"):
    runs.open_data(config)


class Logits:
  """As `EvalContext`: images with labels (N,) or (N, K), whose logits are the parameters."""

  detailed = False

  def __init__(self, config, labels):
    self.loss = config.loss
    self.reader = types.SimpleNamespace(settings=config.data, evaluation=lambda *_, **__: labels)

  def compiled(self, make_step, loss, *, static):
    assert (make_step, loss) == (classification.make_step, self.loss)
    return logits_of_table.step_of(loss.kind)

  @contextlib.contextmanager
  def batches(self, labels):
    yield logits_of_table.batches(labels, 64)


@pytest.mark.parametrize("chosen", [0, 3, 7])
@pytest.mark.parametrize("loss", ["softmax", "sigmoid"])
@pytest.mark.parametrize("several", [False, True])
def test_the_names_are_those_of_the_metrics_that_a_set_gives(several, loss, chosen):
  """Any of them may stop a run early. A set is scored among all classes, or some chosen ones."""
  classes = chosen or CLASSES
  labels = np.arange(20, dtype=np.int32) % classes
  examples = [Example(None, (int(label),), "") for label in labels]
  spec = Classification("csv:x", resize=1.0, classes=chosen)
  source = Listed(examples, multi_label=several)
  source.class_names = source.class_names[:CLASSES]
  named = NamedDataset("config.evaluate.val", spec, source)
  evaluator = LabelledSet(named, tuple(range(chosen)) or None)
  config = resolved.config(loss=c.Loss(kind=loss), model=c.Model(num_classes=CLASSES))
  if several:
    labels = np.eye(CLASSES, dtype=np.uint8)[labels]
  logits = np.random.default_rng(0).normal(size=(20, CLASSES))
  metrics = evaluator.score(Logits(config, labels), logits_of_table.table_of(logits)).metrics
  given = [name for name in metrics if catalogue.metric(f"val/{name}")]
  assert given == [name for name in spec.names(config) if not evaluator.lacks(name)]
