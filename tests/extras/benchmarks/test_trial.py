"""Trials: their FLOPs, and whether what fits by their word does fit."""

import json
import multiprocessing
import sys

import jax
import pytest

from tests import programs
from tests.extras.benchmarks import small
from tests.extras.compiled.test_compilation import needs_libtpu
from vit_jax.extras.benchmarks import trial
from vit_jax.extras.benchmarks.case import Case
from vit_jax.extras.benchmarks.processes import in_process
from vit_jax.extras.commands import cost as cost_tool
from vit_jax.extras.compiled import compilation
from vit_jax.process.machine import lacks_memory


def test_flops_are_those_of_the_tool_that_counts_them(capsys):
  names = ["ViT-B/32", "ViT-L/16", "R50x1", "R50x1+ViT-B/16", "Axial-ViT-B/32"]
  cost_tool.main(["--model", *names, "--image-size=384", "--format=json"])
  for name, row in zip(names, json.loads(capsys.readouterr().out), strict=True):
    assert Case("training", name, 384).gflops() == row["training_gflops"]
    assert Case("inference", name, 384).gflops() == pytest.approx(row["training_gflops"] / 3)


LIMITED = """
from vit_jax.extras.benchmarks import processes
processes.limit_data(2**27)
bytearray(2**26)
bytearray(2**28)
"""


def test_a_process_that_is_limited_cannot_take_more_memory():
  done = programs.run([sys.executable, "-c", LIMITED])
  assert "line 5, in" in done.stderr
  assert done.stderr.endswith("MemoryError\n")


def test_what_the_compiler_counts_is_refused_without_a_run(monkeypatch):
  monkeypatch.setattr(trial, "stepper", None)
  case = small.Small("inference", "ViT-Ti/16", 16)
  assert trial.measured(case, 1, memory=2**20) == dict(fits=False, seconds=None)


@pytest.mark.parametrize(
  ("error", "memory"),
  [
    (MemoryError(), True),
    (RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 632619008 bytes."), True),
    (RuntimeError("INTERNAL: YNNPACK operation failed: error"), True),
    (RuntimeError("INTERNAL: the cable"), False),
  ],
)
def test_only_a_lack_of_memory_is_one(error, memory):
  assert lacks_memory(error) is memory


@needs_libtpu
def test_the_compiler_of_tpus_estimates_what_fits_and_refuses_the_rest(monkeypatch):
  """8,192 images of 224 pixels fit, which takes long to compile; twice that does not."""
  settings = dict(TPU_SKIP_MDS_QUERY="1", ALLOW_MULTIPLE_LIBTPU_LOAD="1", XLA_FLAGS="")
  for name, value in settings.items():
    monkeypatch.setenv(name, value)
  few = small.Small("inference", "ViT-Ti/16", 32), 64
  many = small.Small("training", "ViT-Ti/16", 224), 2 * 8192
  context = multiprocessing.get_context("spawn")
  fitting, refused = in_process(context, small.estimated, "v3:2x2", few, many)["found"]
  assert fitting["fits"]
  assert 1e-6 < fitting["seconds"] < 1e-2
  assert refused == dict(fits=False, seconds=None)


def test_a_refusal_of_the_compiler_is_a_lack_of_memory_and_nothing_else_is(monkeypatch):
  def estimated(said):
    def program(*_):
      raise jax.errors.JaxRuntimeError(said)

    monkeypatch.setattr(compilation, "program", program)
    return trial.estimated(small.Small("inference", "ViT-Ti/16", 32), 64, jax.devices())

  too_large = "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 20G of 16G hbm."
  assert estimated(too_large) == dict(fits=False, seconds=None)
  with pytest.raises(jax.errors.JaxRuntimeError, match="the compiler failed"):
    estimated("INTERNAL: the compiler failed")
