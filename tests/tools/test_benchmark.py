"""The tables that the benchmarks print, and how a case that fails is met."""

import multiprocessing

from tools import benchmark, benchmark_device


def test_columns_that_there_are_in_line():
  rows = [
    dict(name="a", images_per_second=1234.5, ratio=0.5),
    dict(name="longer", images_per_second=2.0, ratio=12.25),
  ]
  assert benchmark.table(rows).splitlines() == [
    "        images/s  ratio",
    "a         1234.5   0.50",
    "longer       2.0  12.25",
  ]


def test_what_could_not_be_measured_says_why():
  rows = [dict(name="a", batch=8, images_per_second=None, ratio=None, mfu=None, error="no torch")]
  assert benchmark.table(rows).splitlines()[1] == "a      8         -      -    -  no torch"


def test_every_model_is_measured_against_torch_and_in_every_way():
  cases = benchmark_device.cases()
  assert len(cases) == len(set(map(str, cases))) == 5 * 6
  assert sum(case.options is None for case in cases) == 5
  assert "ViT-L/16 512 px, timm, torch.compile" in map(str, cases)


def test_the_batch_is_the_largest_that_fits(monkeypatch):
  def run(_, function, case, batch):
    if batch > 64:
      return {"error": "XlaRuntimeError: RESOURCE_EXHAUSTED: out of memory"}
    return {"images_per_second": 7.0, "flops": 1}

  monkeypatch.setattr(benchmark_device, "_in_process", run)
  found = benchmark_device._largest(None, benchmark_device.cases()[0], largest=1024)
  assert found == {"batch": 64, "images_per_second": 7.0, "flops": 1}


def test_another_error_ends_the_case_at_once(monkeypatch):
  tried = []

  def run(_, function, case, batch):
    tried.append(batch)
    return {"error": "ImportError: no timm"}

  monkeypatch.setattr(benchmark_device, "_in_process", run)
  found = benchmark_device._largest(None, benchmark_device.cases()[0], largest=1024)
  assert found == {"batch": 1024, "error": "ImportError: no timm"}
  assert tried == [1024]


def fail():
  raise ValueError("two\nlines")


def end():
  raise SystemExit(3)


def test_a_process_that_fails_is_an_answer():
  context = multiprocessing.get_context("spawn")
  assert benchmark_device._in_process(context, fail) == {"error": "ValueError: two"}
  assert benchmark_device._in_process(context, end) == {"error": "its process ended"}
