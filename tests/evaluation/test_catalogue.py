"""What is known of a metric by its name, whatever evaluation gives it."""

import json

import pytest

from tests import resolved
from vit_jax import config as c
from vit_jax.evaluation import catalogue, results
from vit_jax.evaluation.classification import Classification
from vit_jax.evaluation.few_shot import FewShot
from vit_jax.evaluation.spec import one_behind
from vit_jax.extras.masked_patches.objective import Masked
from vit_jax.extras.masked_patches.reconstruction import Reconstruction
from vit_jax.storage.workdir import METRICS


@pytest.mark.parametrize(
  ("key", "curve", "smaller", "headline"),
  [
    ("a/b/loss", "loss", True, False),
    ("val/top1", "accuracy", False, True),
    ("val/top5", "accuracy", False, False),
    ("val/ece", "", True, False),
    ("val/macro_f1", "", False, False),
    ("val/map", "accuracy", False, False),
    ("val/5shot", "accuracy", False, True),
    ("a/b/20nn", "accuracy", False, True),
    ("val/patch_loss", "loss", True, True),
    ("val/patch_accuracy_masked", "accuracy", False, False),
    ("val/patch_squared_error", "", True, False),
  ],
)
def test_metrics(key, curve, smaller, headline):
  known = catalogue.metric(key)
  assert (known.curve, known.smaller_is_better, known.headline) == (curve, smaller, headline)
  assert catalogue.curve(key) == curve
  assert catalogue.headlines(["step", key]) == [key] * headline


def test_what_is_no_metric_of_an_evaluation():
  for key in ("loss", "top1", "time/idle", "val/5shot_std"):
    assert catalogue.metric(key) is None
    assert catalogue.curve(key) == ""


def test_what_a_run_gives():
  digits = c.Dataset("digits", "test")
  specs = {
    "masked": Reconstruction("digits"),
    "off": Classification(),
    "probe": FewShot(digits, digits, shots=(1, 5)),
    "test": Classification("digits"),
  }
  names = lambda classes: catalogue.names(
    resolved.config(objective=Masked(), model=c.Model(num_classes=classes), evaluate=specs)
  )
  features = ["probe/1shot", "probe/5shot"]
  accuracies = ["accuracy", *(f"accuracy_{kind}" for kind in ("masked", "replaced", "kept"))]
  patches = [f"masked/patch_{name}" for name in ("loss", "constant_loss", *accuracies)]
  one = ["test/ece", *(f"test/macro_{name}" for name in ("precision", "recall", "f1"))]
  assert names(6) == ["test/loss", "test/top1", "test/top5", *one, *features, *patches]
  assert names(5) == ["test/loss", "test/top1", *one, *features, *patches]  # it says nothing
  assert names(c.AUTO) == names(6)  # the data may have more than five


def test_metrics_are_told_by_the_evaluation_that_they_belong_to():
  metrics = {"a/top1": 0.5, "a/top5": 0.75, "a/loss": 1.0, "a/examples": 1000}
  metrics |= {"a/b/20nn": 0.25, "a/5shot": 0.5, "a/5shot_std": 0.125}
  assert catalogue.in_words(json.loads(json.dumps(metrics | {"step": 7}))) == (
    "a: top-1 50.00%, top-5 75.00%, loss 1.0000 on 1,000 images; a/b: 20 nearest 25.00%; "
    "a: 5-shot 50.00% +- 12.50%"
  )


def test_a_set_without_its_headline_metric_is_told_by_another(tmp_path):
  """Images without any label have a loss, but no accuracy."""
  line = {"step": 7, "a/loss": 1.0, "a/examples": 4, "a/labelled": 0}
  assert catalogue.in_words(line) == "a: loss 1.0000 on 4 images, 0 of them with a label"
  other = {"b/top1": 0.5, "b/loss": 2.0, "b/examples": 3}
  both = "b: top-1 50.00%, loss 2.0000 on 3 images; a: loss 1.0000 on 4 images"
  assert catalogue.in_words({**line, "training/loss": 3.0, **other}).startswith(both)
  lines = [{"step": 7, "loss": 3.0, "time/steps": 1.0}, line]
  (tmp_path / METRICS).write_text("".join(f"{json.dumps(each)}\n" for each in lines))
  assert results.evaluations_in(tmp_path) == [line]


def test_each_result_is_read_after_the_next_one_was_dispatched():
  dispatched = []

  def results(count):
    for number in range(count):
      dispatched.append(number)
      yield number

  seen = [(result, len(dispatched)) for result in one_behind(results(4))]
  assert seen == [(0, 2), (1, 3), (2, 4), (3, 4)]
  assert list(one_behind(results(0))) == []
