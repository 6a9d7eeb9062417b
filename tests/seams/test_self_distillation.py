"""Self-distillation with a teacher (DINO) is this file and its line.

Two large and four small crops of each image; the student of every crop is to say what the teacher
says of the other large ones. The teacher is the student's moving average, and the centre that of
its outputs. Source: Caron et al., "Emerging properties in self-supervised vision transformers",
2021.
"""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import ends, resolved
from tests.seams import program
from vit_jax import config as c
from vit_jax import recipes, registry
from vit_jax.config import ConfigError, ObjectiveSettings, View
from vit_jax.config.fields import name_of_kind
from vit_jax.data.batches import normalize, train_transform
from vit_jax.extras.experiments import step_program
from vit_jax.learning.objective import OBJECTIVE_PARAMS, Objective, Sums
from vit_jax.models import vit_costs
from vit_jax.recipes import cost
from vit_jax.storage import workdir

OUTPUTS, LARGE, SMALL = 24, 16, 8
MOMENTUM, CENTRE, STUDENT, TEACHER = 0.9, 0.9, 0.1, 0.04


@dataclasses.dataclass(frozen=True)
class Settings(ObjectiveSettings):
  """Self-distillation."""

  kind: str = name_of_kind("self_distillation", "what a moving average says of other crops")

  def views(self, data):
    large, small = data.cropped(LARGE, (0.4, 1.0)), data.cropped(SMALL, (0.05, 0.4))
    return {"large": View(large, 2), "small": View(small, 4)}

  def configured(self, config, model):
    del config
    return SelfDistillation(model)


@dataclasses.dataclass(frozen=True)
class SelfDistillation(Objective):
  """The cross-entropy of student and teacher over pairs of different crops."""

  model: object

  def init(self, key, image_size):
    images = jnp.zeros((1, image_size, image_size, 3))
    params = self.model.init(key, images, train=False, method="features")["params"]
    kernel = jax.random.normal(key, (self.model.width, OUTPUTS)) / 4
    return params | {OBJECTIVE_PARAMS: {"kernel": kernel}}

  def begin(self, params):
    return {"teacher": params, "centre": jnp.zeros(OUTPUTS)}

  def prepare(self, batch, key):
    return batch

  def loss(self, params, extra, batch, key):
    large, small, mask = batch["large"], batch["small"], batch["mask"]
    teacher = self._outputs(extra["teacher"], large, train=False, key=key)
    target = jax.nn.softmax((teacher - extra["centre"]) / TEACHER)
    values, pairs = 0.0, 0
    for crops in (large, small):
      student = self._outputs(params, crops, train=True, key=key)
      log = jax.nn.log_softmax(student / STUDENT)
      for i in range(target.shape[1]):
        for j in range(log.shape[1]):
          if crops is small or i != j:
            values, pairs = values - (target[:, i] * log[:, j]).sum(-1), pairs + 1
    entropy = -(target * jnp.log(target + 1e-9)).sum(-1).mean(-1)
    metrics = {"teacher_entropy": (jnp.sum(entropy * mask), mask.sum())}
    statistics = jnp.einsum("b,bik->k", mask, teacher) / teacher.shape[1], mask.sum()
    return Sums(jnp.sum(values / pairs * mask), mask.sum(), metrics, statistics)

  def after_update(self, params, extra, statistics):
    follow = lambda old, new, keep: keep * old + (1 - keep) * new
    total, count = statistics
    return {
      "teacher": jax.tree.map(
        lambda old, new: follow(old, new, MOMENTUM), extra["teacher"], params
      ),
      "centre": follow(extra["centre"], total / count, CENTRE),
    }

  def training_flops(self, image_size):
    macs = lambda side: self.model.macs(side, side)
    crops = vit_costs.training_flops(2 * macs(image_size) + 4 * macs(SMALL))
    return crops + 2 * 2 * macs(image_size)

  def _outputs(self, params, crops, *, train, key):
    """(B, n, S, S, 3) -> (B, n, OUTPUTS)."""
    flat = normalize(crops.reshape(-1, *crops.shape[2:]), self.model.dtype)
    features = self.model.apply(
      {"params": params}, flat, train=train, method="features", rngs={"dropout": key}
    )
    outputs = features["pre_logits"] @ params[OBJECTIVE_PARAMS]["kernel"]
    return outputs.reshape(*crops.shape[:2], OUTPUTS)


WORDS = (
  "--config.objective.kind=self_distillation",
  "--config.evaluate.test.source=",  # it trains no head
  "--config.data.train.label_key=",
  "--config.model.positions=sincos2d",  # they fit crops of all sizes
  "--config.model.pool=gap",
  "--config.optimizer.ema=0",
)


@pytest.fixture(autouse=True)
def line(monkeypatch):
  name = "tests.seams.test_self_distillation:Settings"
  monkeypatch.setitem(registry.OBJECTIVES, "self_distillation", name)


@pytest.mark.usefixtures("one_device")
def test_it_trains_and_resumes_to_the_same_bits(tmp_path):
  whole, parts = tmp_path / "whole", tmp_path / "parts"
  words = (*WORDS, "--config.duration.steps=4", "--config.verify_every=2")
  assert program.run(whole, *words)
  assert not program.run(parts, *words, stop=program.StopAfter(2))
  assert program.run(parts, *words)
  (arrays, lines), (others, other_lines) = (ends.final_state(run, 4) for run in (whole, parts))
  assert {"extra/centre", f"extra/teacher/{OBJECTIVE_PARAMS}/kernel"} <= arrays.keys()
  chex.assert_trees_all_equal(arrays, others)
  losses = [{x["step"]: x["batch/loss"] for x in each} for each in (lines, other_lines)]
  assert losses[0] == losses[1]
  assert len(set(losses[0].values())) == 4
  assert 0 < lines[-1]["training/teacher_entropy"] < np.log(OUTPUTS)
  assert (whole / workdir.IMAGES / "0.png").exists()


def test_its_step_is_planned_without_data():
  config = recipes.resolve("configs/vit_digits.py", (*program.SMALL, *WORDS))
  run = step_program.planned(config, jax.devices()[:2])
  batch = run.abstract_batch()
  shapes = {name: x.shape[1:] for name, x in batch.items()}
  assert shapes == dict(large=(2, LARGE, LARGE, 3), small=(4, SMALL, SMALL, 3), mask=())
  assert c.to_dict(config)["objective"] == {"kind": "self_distillation"}
  arrays = (run.abstract.params, run.abstract.optimizer, run.abstract.ema, run.abstract.extra)
  held = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(arrays))
  assert cost.cost(config, 10)["checkpoint_bytes"] == held


class Turned(Settings):
  """Whose crops have their bounds the wrong way round."""

  def views(self, data):
    return {"large": View(data.cropped(LARGE, (0.4, 0.05)))}


def test_crops_of_a_view_are_checked_before_the_data_is_opened(tmp_path, monkeypatch):
  monkeypatch.setitem(registry.OBJECTIVES, "self_distillation", f"{__name__}:Turned")
  message = r"the images 'large' of config\.objective\.kind=self_distillation: .*crop_area=\(0\.4, "
  with pytest.raises(ConfigError, match=message):
    program.run(tmp_path, *WORDS, "--config.data.train.source=folder:missing")


def test_crops_of_a_view_are_crops_whatever_resizes_the_image_elsewhere():
  """train_resize and train_pad would take their place without a word."""
  data = resolved.data(image_size=LARGE, train_resize=20)
  for view in Settings().views(data).values():
    cut = train_transform(view.data)(np.zeros((60, 80, 3), np.uint8), rng=np.random.default_rng(0))
    assert cut.grid == (60, 80)
    assert cut.box.height * cut.box.width < 60 * 80
