"""An optimizer is one file and one line: a toy goes through the main program."""

import dataclasses
import json
from typing import ClassVar

import chex
import jax
import numpy as np
import optax
import pytest

from tests import ends
from tests.seams import program
from vit_jax import recipes, registry
from vit_jax.config import Optimizer
from vit_jax.config.fields import name_of_kind, setting
from vit_jax.extras.report import report
from vit_jax.learning import optim
from vit_jax.storage import checkpoint

pytestmark = pytest.mark.usefixtures("one_device")

TOY = "--config.optimizer.kind=sums"


@dataclasses.dataclass(frozen=True)
class Sums(Optimizer):
  """A decaying sum of gradients."""

  kind: str = name_of_kind("sums", "a decaying sum of gradients")
  memory: float = setting(0.5, "decay of the sum", low=0.0, high=0.99)

  moment: ClassVar[str] = "trace"

  def precondition(self):
    """The sum for matrices alone; the chain after it is that of all optimizers."""
    rules = {"matrix": optax.trace(self.memory), "other": optax.identity()}
    of = lambda params: jax.tree.map(lambda p: "matrix" if p.ndim > 1 else "other", params)
    return optax.partition(rules, of)


@pytest.fixture(autouse=True)
def line(monkeypatch):
  monkeypatch.setitem(registry.OPTIMIZERS, "sums", f"{__name__}:Sums")


def trained(folder, *words):
  """The parameters at the end of a run."""
  rate = "--config.schedule.learning_rate=3e-3"
  lengths = "--config.duration.steps=4", "--config.checkpoint.every.steps=2"
  assert program.run(folder, TOY, rate, *words, *lengths)
  return checkpoint.load_params(checkpoint.find(folder), ema=False)


def test_two_updates_are_those_by_hand():
  words = [*program.SMALL, TOY, "--config.optimizer.memory=0.25"]
  settings = recipes.resolve("configs/vit_digits.py", words).optimizer
  settings = dataclasses.replace(settings, weight_decay=0.5, clip_norm=0.0)
  rule = optim.make(settings)
  matrix, bias = np.float32([[1, -2], [3, 4]]), np.float32([5, -6])
  params = {"head": {"kernel": matrix, "bias": bias}}
  given = {"learning_rate": 0.1, "grad_norm": 1.0, "depth": 1}
  state = rule.init(params)
  for times, memory in ((1, 0), (-2, 0.25)):  # the second sum holds a quarter of the first
    grads = jax.tree.map(lambda p, times=times: times * p, params)
    found, state = rule.update(grads, state, params, **given)
    expected = -0.1 * ((times + memory) * matrix + 0.5 * matrix)
    np.testing.assert_allclose(found["head"]["kernel"], expected, rtol=1e-6)
    np.testing.assert_allclose(found["head"]["bias"], -0.1 * times * bias, rtol=1e-6)


def test_it_trains_resumes_and_is_in_the_report(tmp_path):
  whole, parts, own = tmp_path / "whole", tmp_path / "parts", "--config.optimizer.memory=0.25"
  params = trained(whole, own)
  ends.copy_as_stopped(whole, parts, step=2)
  chex.assert_trees_all_equal(params, trained(parts, own))
  settings = json.loads((whole / "config.json").read_text())["optimizer"]
  assert settings == dataclasses.asdict(Sums(0.1)) | settings
  assert (settings["kind"], settings["memory"]) == ("sums", 0.25)
  assert "beta1" not in settings
  report.write([whole], tmp_path / "report.html", inside=False)
  page = (tmp_path / "report.html").read_text()
  assert "sums" in page
  assert "optimizer.memory" in page
