"""What a study will cost: time by steps that are measured here, else device-days of a TPU."""

import dataclasses

import jax
import pytest

from tests.extras.experiments.studies import stub
from vit_jax.extras.experiments import step_program
from vit_jax.extras.experiments.studies import Cell, Stage, plan, step_time
from vit_jax.extras.experiments.studies.jobs import Cost
from vit_jax.extras.experiments.studies.step_time import Speed

AUTO = "--config.model.compute_dtype=auto"


def costs(tmp_path, study, monkeypatch, speeds):
  """The plan's costs, where each step that is measured takes the next of these speeds."""
  measured = []

  def speed(config, cost):
    assert cost.flops
    assert config.model.compute_dtype == "float32"  # "auto", as a run computes on a CPU
    measured.append(config.model.dropout)
    return speeds[len(measured) - 1]

  monkeypatch.setattr(step_time, "measured_speed", speed)
  return stub.runner(tmp_path, study, [AUTO]).checked_costs(measure=True), measured


def test_alike_steps_are_measured_once_and_compiled_in_each_training(tmp_path, monkeypatch):
  study = stub.study(0.0)
  per_image = Speed(compiling=30.0, image=0.5, flops=1.0)
  (tuning,) = [one.stage for one in study.cells]
  evaluated = Stage(stub.DIGITS, tuning.settings, name="last", after=tuning, mode="evaluate")
  cells = (*study.cells, Cell("last", evaluated, {"dropout": 1.0}))
  study = dataclasses.replace(study, cells=cells)
  found, measured = costs(tmp_path, study, monkeypatch, [per_image] * 9)
  assert len(measured) == 1  # the candidates, the pre-training and both seeds have one step
  line = plan.lines(study, found)[-1]
  image = 0.5 * found[next(iter(found))].flops  # seconds
  expected = (30.0 * (line.runs - study.seeds) + image * line.images) / 60
  assert line.minutes_here == pytest.approx(expected)
  assert line.device_days is None
  assert "time here" in plan.estimate_table([line])
  assert "device-days" not in plan.estimate_table([line])


def test_when_the_time_is_over_flops_tell_the_rest(tmp_path, monkeypatch):
  monkeypatch.setattr(step_time, "BUDGET", -1.0)
  found, measured = costs(tmp_path, stub.study(0.0, 0.1), monkeypatch, [Speed(0.0, 1.0, 1e6)])
  assert len(measured) == 1
  assert all(cost.seconds for cost in found.values() if cost.seconds is not None)


def test_what_does_not_fit_in_memory_has_device_days(tmp_path, monkeypatch):
  study = stub.study(0.0)
  found, _ = costs(tmp_path, study, monkeypatch, [None] * 9)
  line = plan.lines(study, found)[-1]
  assert line.minutes_here is None
  assert line.device_days > 0
  assert "device-days" in plan.estimate_table([line])


@pytest.mark.usefixtures("one_device")
def test_a_step_is_measured(tmp_path):
  runner = stub.runner(tmp_path, stub.study(0.0))
  (config, *_) = runner.configs().values()
  small = dataclasses.replace(config.model, depth=1, width=16, mlp_dim=32, heads=2)
  config = dataclasses.replace(config, model=small)
  speed = step_time.measured_speed(config, Cost(10, config.batch_size, 1e12))  # on one image alone
  assert speed.compiling > 0
  assert 1e-5 < speed.image < 10


def test_a_step_whose_classes_are_left_to_data_is_measured_with_one(tmp_path):
  study = stub.study(0.0)
  gone = [f"--config.data.train.source=folder:{tmp_path}/gone", "--config.model.num_classes=auto"]
  made = stub.runner(tmp_path, study, gone)
  assert all(one.flops and one.trains_all for one in made.checked_costs().values())
  (config, *_) = made.configs().values()
  planned = step_program.planned(config, jax.devices()[:1])
  assert (planned.config.model.num_classes, planned.config.loss.kind) == (1, "softmax")


@pytest.mark.parametrize(
  ("minutes", "words"),
  [(None, "?"), (0.5, "30 s"), (12.3, "12 min"), (204, "3.4 h"), (3024, "2.1 days")],
)
def test_durations(minutes, words):
  assert plan.minutes(minutes) == words
