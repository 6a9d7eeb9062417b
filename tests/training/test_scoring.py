"""A state is saved before it is scored; an evaluation that failed is made at the next start."""

import dataclasses
import functools

import jax
import numpy as np
import pytest

from tests import tiny_run
from tests.data import numbered
from vit_jax import config as c
from vit_jax import launch
from vit_jax.data import batches as batching
from vit_jax.data import pipeline
from vit_jax.data.images import BadImage
from vit_jax.data.sources import open_source
from vit_jax.evaluation import evaluations, spec
from vit_jax.evaluation.evaluations import NotScored
from vit_jax.extras.report import run as reported
from vit_jax.process import agreement
from vit_jax.process.console import StopRequest
from vit_jax.storage import checkpoint, metrics_log
from vit_jax.training import run as runs
from vit_jax.training import start

CONFIG = dataclasses.replace(
  tiny_run.CONFIG,
  checkpoint=c.Checkpoint(every=c.Duration(steps=100)),
  evaluate_every=c.Duration(steps=3),
  early_stopping=c.EarlyStopping(metric="test/top1", patience=1),
)


def go_on(folder):
  """Trains, or goes on."""
  recorded = start.read_recorded(folder)
  made = runs.make(CONFIG, runs.open_data(CONFIG), jax.devices()[:1], taken=recorded.images)
  assert launch.train(made, folder, StopRequest())
  return [line for line in metrics_log.read_lines(folder) if "loss" not in line]


def test_a_state_is_saved_before_it_is_scored_and_scored_again_if_that_failed(
  tmp_path, monkeypatch
):
  saved = []

  def fails(name, *_):
    saved.append(checkpoint.available(tmp_path))
    raise NotScored("no light")

  with monkeypatch.context() as patched:
    patched.setattr(evaluations, "score", fails)
    lines = go_on(tmp_path)
  assert [line["step"] for line in lines if line["test/unscored"]] == [3, 5]
  assert [steps[-1] for steps in saved] == [3, 5]
  (note,) = reported.read_run(tmp_path, "run").notes
  assert note == "Evaluation set 'test' could not be scored 2 time(s), last after step 5."
  first, second = go_on(tmp_path)
  assert (first["step"], second["step"], second["test/examples"]) == (3, 5, 360)
  losses = [line["step"] for line in metrics_log.read_lines(tmp_path) if "loss" in line]
  assert losses == [1, 2, 3, 4, 5]


def test_of_several_processes_all_take_the_same_batches_and_fail_together(monkeypatch):
  """One cannot read an image: it goes on with rows that do not count, and tells the others."""
  source = open_source("digits", split="test")

  def broken(image):
    raise BadImage("no light")

  reading = dict(batch_size=96, host=1, hosts=2, threads=0)
  read = functools.partial(pipeline.evaluate_batches, source, **reading)
  layout = numbered.layout(source, lambda x: numbered.whole(np.zeros((1, 1, 3))), 1)
  wanted = len(list(read(layout=layout)))
  read = read(layout=layout)
  read._read = iter(map(broken, [0]))
  together = batching.InStep(read)
  batches = list(together)
  assert (len(batches), "no light" in together.failure) == (wanted, True)
  assert {x["mask"].sum() for x in batches} == {0.0}
  assert {x["image"].shape for x in batches} == {(48, 1, 1, 3)}
  monkeypatch.setattr(agreement, "allgather_str", lambda text: ["", text])
  taken = spec._all_read(iter(batches), together)
  assert [next(taken) for _ in batches] == batches
  with pytest.raises(spec.UnreadError, match="no light"):
    next(taken)
