"""The tables that the benchmarks print, also if a case fails."""

import math
import multiprocessing
import threading
import time

import pytest

from vit_jax.data import pipeline
from vit_jax.extras.benchmarks import (
  accelerator,
  bucket,
  formats,
  inference,
  input,
  processes,
  step,
)
from vit_jax.extras.commands import benchmark
from vit_jax.extras.experiments import timing
from vit_jax.extras.sources import webdataset


def test_what_could_not_be_measured_says_why():
  rows = [dict(name="a", batch=8, images_per_second=None, ratio=None, mfu=None, error="no torch")]
  assert benchmark.table(rows).splitlines()[1].split() == ["a", "8", "no", "torch"]


def measured_with(monkeypatch, answer):
  """The first case with the largest batch that fits; `answer` takes the place of a measurement."""
  monkeypatch.setattr(accelerator, "in_process", lambda _, function, case, batch: answer(batch))
  return accelerator._largest(None, accelerator.cases()[0], largest=1024)


def test_the_batch_is_the_largest_that_fits_and_another_error_ends_the_case(monkeypatch):
  too_large = {"error": "XlaRuntimeError: RESOURCE_EXHAUSTED: out of memory"}
  measured = {"images_per_second": 7.0, "flops": 1}
  found = measured_with(monkeypatch, lambda batch: too_large if batch > 128 else measured)
  assert found == measured | {"batch": 128}
  failed = {"error": "ImportError: no timm"}
  assert measured_with(monkeypatch, lambda _: failed) == failed | {"batch": 1024}


def test_figures_are_of_the_device_and_beside_torch_on_the_same_model(monkeypatch):
  """A device of 1 GFLOP/s, images of 10 MFLOP, torch at 10 images/s and ours at 20."""

  def run(_, function, *arguments):
    if function is accelerator._device:
      return dict(platform="cpu", flops_per_second=1e9)
    case, batch = arguments
    assert batch == 8
    if case.options and case.options.get("scan"):
      return {"error": "no scan today"}
    return dict(images_per_second=20.0 if case.options else 10.0, flops=1e7)

  monkeypatch.setattr(accelerator, "in_process", run)
  torch, ours, failed, *others = accelerator.measure()
  assert (torch["ratio"], torch["mfu"]) == (1, 0.1)
  assert (ours["ratio"], ours["mfu"], ours["batch"]) == (2, 0.2, 8)
  assert (failed["ratio"], failed["mfu"], failed["error"]) == (None, None, "no scan today")
  assert [row["name"] for row in others] == [str(case) for case in accelerator.cases()]
  assert {row["error"] for row in others} == {"not measured: no GPU"}
  assert {row["images_per_second"] for row in others} == {None}


def test_a_case_is_a_training_step_of_the_model_it_names(monkeypatch):
  def twice_a_second(step, **_):
    losses.append(float(step()["loss"]))
    losses.append(float(step()["loss"]))
    return 0.5

  losses = []
  monkeypatch.setattr(timing, "median_seconds", twice_a_second)
  _, case, _ = accelerator.small_cases()
  found = accelerator._time(case, batch=4)
  assert found["images_per_second"] == 8
  # ViT-Ti/16 of two blocks on 32 x 32: 5 tokens of width 192, attention and 1000 classes.
  block = 5 * (4 * 192**2 + 2 * 192 * 768) + 2 * 25 * 192
  macs = 4 * 768 * 192 + 2 * block + 192 * accelerator.training_step.CLASSES
  assert found["flops"] == 3 * 2 * macs
  assert losses[0] == pytest.approx(math.log(1000), rel=0.1)
  assert losses[1] != losses[0]


def test_a_step_is_compared_with_torch_and_with_the_matmul_of_its_round(monkeypatch):
  """Steps of 1, 2 and 4 s on a machine of 1 TFLOP/s that is half as fast in the last two rounds."""
  speeds = iter([1.0, 0.5, 0.5])
  of = {step.OURS: 1.0, step.EAGER: 2.0, step.COMPILED: 4.0}
  now = None

  def run(_, function, *arguments):
    nonlocal now
    if function is step.matmul_rate:
      now = next(speeds)
      return dict(flops_per_second=1e12 * now, flops=1e10)
    return dict(seconds=of[arguments[0]] / now)

  monkeypatch.setattr(step, "in_process", run)
  ours, eager, compiled = step.measure()
  assert [row["ratio"] for row in (ours, eager, compiled)] == [2, 1, 0.5]
  assert [row["mfu"] for row in (ours, eager, compiled)] == pytest.approx([0.16, 0.08, 0.04])
  assert ours["images_per_second"] == 8
  monkeypatch.setattr(step, "in_process", lambda *_: {"error": "no torch"})
  with pytest.raises(SystemExit, match="XLA's matmul could not be measured: no torch"):
    step.measure()


def test_predictions_are_compared_with_torch_by_model_and_batch(monkeypatch):
  """Ours take a tenth of a second, and torch twice as long for each image of a batch."""

  def run(_, function, model, batch, name):
    assert (function, model) in {(inference.call_seconds, one) for one in inference.MODELS}
    return dict(seconds=0.1 if name == step.OURS else 0.2 * batch)

  monkeypatch.setattr(step, "in_process", run)
  rows = {(row["name"], row["batch"]): row for row in inference.measure(rounds=2)}
  assert len(rows) == 12
  assert rows["ViT-B/16, vit_jax", 32]["images_per_second"] == pytest.approx(320)
  assert rows["ViT-B/16, vit_jax", 32]["ratio"] == pytest.approx(64)
  assert rows["ViT-S/16, vit_jax", 1]["ratio"] == pytest.approx(2)
  assert rows["ViT-S/16, timm, torch.compile", 1]["ratio"] == 1


def test_what_is_timed_classifies_all_images(monkeypatch):
  monkeypatch.setattr(inference, "IMAGES", 3)
  monkeypatch.setattr(inference, "MODELS", {"ViT-Ti/16": ""})
  monkeypatch.setattr(step, "SIDE", 32)
  found = []
  monkeypatch.setattr(timing, "median_seconds", lambda call, **_: found.extend(call()))
  inference.call_seconds("ViT-Ti/16", 2, step.OURS)
  assert [len(one.classes) for one in found] == [inference.TOP] * 3


def test_rates_are_those_of_a_product(monkeypatch):
  monkeypatch.setattr(timing, "median_seconds", lambda product, **_: [product(), 0.25][1])
  assert accelerator._device() == dict(platform="cpu", flops_per_second=2 * 512**3 / 0.25)
  monkeypatch.setattr(step, "MATMUL", 8)
  found = step.matmul_rate()
  assert found["flops_per_second"] == 2 * 8**3 / 0.25
  assert found["flops"] == pytest.approx(27.6e9, rel=0.01)  # 4.6 GMACs forward


def test_a_turn_ends_with_its_threads():
  """They would read on during the next pipeline's turn."""
  others = set(threading.enumerate())
  load = lambda index: time.sleep(0.2) or {"first": index}
  make = lambda: pipeline._in_order(load, 10, 2, 4)
  input.turn(make, seconds=0.01, batch_size=1, cpu=lambda: 0.0)
  assert set(threading.enumerate()) <= others


def test_a_thread_that_ends_while_cpu_time_is_read_has_no_children():
  """Threads of a pipeline end at any moment, and then /proc has no file of them any more."""
  stop = threading.Event()

  def churn():
    while not stop.is_set():
      threads = [threading.Thread(target=time.sleep, args=(0.0001,)) for _ in range(8)]
      [thread.start() for thread in threads]
      [thread.join() for thread in threads]

  churning = threading.Thread(target=churn)
  churning.start()
  try:
    times = [input.cpu_seconds() for _ in range(200)]
  finally:
    stop.set()
    churning.join()
  assert times == sorted(times)


@pytest.mark.parametrize(
  ("code", "error"),
  [("raise ValueError('two\\nlines')", "ValueError: two"), ("exit(3)", "its process ended")],
)
def test_a_process_that_fails_is_an_answer(code, error):
  context = multiprocessing.get_context("spawn")
  assert processes.in_process(context, exec, code) == {"error": error}


@pytest.fixture
def no_data_yet(monkeypatch, tmp_path):
  """No data set and no index is there; the variables that a benchmark sets are taken back."""
  for name in ("TFDS_DATA_DIR", "STORAGE_EMULATOR_HOST"):
    monkeypatch.setenv(name, "")
  monkeypatch.setattr(webdataset, "INDICES", tmp_path)


OTHERS = formats.FORMATS.keys() - {"hf:"}


@pytest.mark.usefixtures("no_data_yet")
@pytest.mark.parametrize("names", [OTHERS, {"folder:", "hf:"}], ids=["others", "hf"])
def test_every_format_is_measured(monkeypatch, names):
  if "hf:" in names:
    pytest.importorskip("datasets", reason="datasets is not installed (extra `hf`)")
  assert {"folder:", "csv:", "wds:", "tfds:"} < OTHERS
  some = {name: make for name, make in formats.FORMATS.items() if name in names}
  monkeypatch.setattr(formats, "FORMATS", some)
  rows = formats.measure(rounds=1, seconds=0.01, batch_size=2, files=12)
  assert [row["name"] for row in rows] == list(some)
  assert not [row for row in rows if row["error"]]
  assert rows[0]["ratio"] == 1
  assert "CPU us/image" in benchmark.table(rows)


@pytest.mark.usefixtures("no_data_yet")
def test_buckets_are_measured_beside_the_disk():
  measured = bucket.measure(rounds=1, seconds=0.01, batch_size=2, count=12)
  rows = {row["name"]: row for row in measured}
  places = ("disk", "0 ms", "10 ms", "50 ms")
  assert rows.keys() == {f"{name}, {place}" for name in bucket.NAMES for place in places}
  assert all(rows[f"{name}, disk"]["ratio"] == 1 for name in bucket.NAMES)
  assert all(row["cpu_microseconds"] > 0 for row in rows.values())
