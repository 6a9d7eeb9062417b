"""The report of compile_check about a program, and the rows that compile_table makes of it."""

import csv
import dataclasses
import gzip
import json
import subprocess

import jax
import pytest

from tests import resolved
from tests.extras.compiled.made import GIB, PROGRAM
from tools import compile_table
from vit_jax import recipes
from vit_jax.config import AUTO, ConfigError, RunError
from vit_jax.extras.commands import main as commands
from vit_jax.extras.compiled import (
  compilation,
  compiled_recipes,
  platforms,
  program_text,
  report,
  table,
  words,
)
from vit_jax.extras.compiled.platform import known
from vit_jax.extras.masked_patches.objective import Masked

ROOT = table.ROOT
READ_BY_OTHERS = "devices peak_bytes hbm_bytes fits flops_per_device step_seconds_estimate"
BASE = recipes.load(str(ROOT / "configs/vit_b16_jft.py"))


def test_the_table_has_every_recipe_whose_days_the_paper_tells():
  told = {
    (config.model.name, config.model.num_classes, config.duration.epochs)
    for config in map(recipes.load, compiled_recipes.recipes())
  }
  assert {(*model, epochs) for model, (_, epochs) in report.PAPER_CORE_DAYS.items()} <= told


@pytest.mark.parametrize(
  ("topology", "install"),
  [
    ("v3:2x2", r"pip install --target=\.libtpu libtpu \(in"),
    ("h100:8", r"pip install --target=\.libgpu --no-deps .*-nvvm \(in"),
  ],
)
def test_without_the_compiler_it_says_what_to_install(monkeypatch, topology, install):
  monkeypatch.setattr(platforms.importlib.util, "find_spec", lambda name: None)
  with pytest.raises(RunError, match=f"compiler is not installed; install it: {install}"):
    platforms.devices_of(topology)


@pytest.mark.parametrize(("task", "steps"), [("imagenet", 20_000), ("cifar100", 10_000)])
def test_days_of_a_recipe_in_steps_need_no_number_of_images(task, steps):
  config = resolved.without_data(recipes.load(f"configs/finetune.py:ViT-B/16,{task}"))
  found = report.estimates(config, PROGRAM)
  assert found["days"] == pytest.approx(steps * 0.27 / 86_400)


def test_what_follows_from_the_time_of_a_step():
  config = recipes.load(str(ROOT / "configs/vit_h14_jft.py"))
  found = report.estimates(config, PROGRAM)
  assert found["images_per_second_per_device"] == pytest.approx(8 / 0.27)
  # 167.4 billion multiply-adds an image: Table 6's 4,262 exaFLOPs over 14 epochs of 303 million.
  steps = 14 * recipes.examples_of(config) / 4096
  assert found["days"] == pytest.approx(steps * 0.27 / 86_400, rel=1e-5)
  assert found["core_days"] == pytest.approx(512 * found["days"])
  assert found["paper_core_days"] == 2500
  assert found["paper_epochs"] == 14
  assert found["mfu"] == pytest.approx(6 * 167.4e9 * 8 / 0.27 / 61.5e12, rel=0.01)


@pytest.mark.parametrize(
  ("recipe", "days"),
  [
    ("vit_l16_jft.py", 680),
    ("vit_l16_i21k.py", 230),
    ("vit_shape_jft.py:patch", None),  # ViT-L/16 with 8 blocks
    ("vit_b16_jft.py", None),  # not in Table 2
  ],
)
def test_the_papers_days_are_of_the_same_step(recipe, days):
  config = recipes.load(str(ROOT / "configs" / recipe))
  assert report.core_days_in_paper(config)[0] == days
  for changed in (
    dataclasses.replace(config, objective=Masked()),
    dataclasses.replace(config, data=dataclasses.replace(config.data, image_size=192)),
    dataclasses.replace(config, optimizer=dataclasses.replace(config.optimizer, trainable="head")),
  ):
    assert report.core_days_in_paper(changed) == (None, None)


def test_the_rate_of_a_partly_trained_step_is_not_told():
  part = dataclasses.replace(BASE.optimizer, trainable="head/.*")
  found = report.estimates(dataclasses.replace(BASE, optimizer=part), PROGRAM)
  assert found["mfu"] is None
  assert found["days"] == report.estimates(BASE, PROGRAM)["days"]


def test_a_recipe_that_trains_nothing_has_no_step():
  config = recipes.load(str(ROOT / "configs/evaluate.py:knn,ViT-B/16"))
  with pytest.raises(ConfigError, match=r"config.duration is 0, so this recipe has no training st"):
    report.report(config, "v3:2x2")


@pytest.mark.parametrize(("epochs", "days"), [(7, 1.6184), (14, 3.2369)])
def test_days_stand_beside_the_papers_whatever_the_length(epochs, days):
  config = recipes.load(str(ROOT / f"configs/vit_l16_jft.py:{epochs}"))
  row = report.facts(config, PROGRAM)
  assert set(READ_BY_OTHERS.split()) <= row.keys()
  assert row["days"] == pytest.approx(days, rel=1e-3)
  text = words.lines_of(row)[-1]
  assert text.startswith(f"the recipe: {days:.1f} days, {512 * row['days']:,.1f} device-days")
  assert text.endswith(" (Table 2: 680 TPUv3-core-days, 14 epochs)")
  assert words.lines_of(row | {"days": 0.25})[-1].startswith("the recipe: 6.0 hours, ")


def test_a_program_that_does_not_fit_is_told_with_one_that_does():
  program = report.facts(BASE, PROGRAM)
  refused = program | {"fits": False, "peak_bytes": 18 * GIB, "step_seconds_estimate": None}
  row = dict(topology="v3:16x16", model="ViT-B/16", image_size=224, global_batch=4096, chosen={})
  remedy = {"settings": {"accumulation": 4, "mesh.fsdp": 64}} | program
  text = words.table(row | refused | {"remedy": remedy})
  assert "does not fit, by 2.00 GiB\n--config.accumulation=4 --config.mesh.fsdp=64 makes" in text
  assert "peak 10.00 GiB of 16.00 GiB: fits" in text
  assert "270.0 ms, 30 images/s each" in text
  assert "(optimistic): 210.0 ms" in text
  assert "all-reduce: 2, results of 3.0 MiB" in text
  text = words.table(row | refused | {"remedy": None})
  assert text.splitlines()[-1].startswith("no setting")


def test_the_second_state_of_verified_steps_is_told():
  assert "config.verify_every" not in words.line_of_memory(report.facts(BASE, PROGRAM))
  verified = dataclasses.replace(PROGRAM, second_state_bytes=GIB)
  line = words.line_of_memory(report.facts(BASE, verified))
  assert "3.00 GiB, a second state for config.verify_every 1.00 GiB, peak 10.00 GiB" in line


def test_where_the_time_goes_adds_up_to_the_step():
  text = gzip.decompress((ROOT / "tests/fixtures/programs/vit.txt.gz").read_bytes()).decode()
  seconds = program_text.cycles(text) / known("TPU v3").clock_hz
  program = dataclasses.replace(PROGRAM, step_seconds=seconds, text=text)
  row = report.facts(BASE, program, parts=True)
  assert sum(part["seconds"] for part in row["breakdown"]) == pytest.approx(seconds, rel=1e-12)
  assert all(part["ratio"] >= 1 for part in row["breakdown"])
  lines = words.lines_of(row)
  name, *_, by_cycles, _ = lines[-1].split()
  assert (name, by_cycles) == ("all", f"{seconds * 1e3:.2f}")
  assert len(lines) == len(words.lines_of(report.facts(BASE, program))) + 2 + len(row["breakdown"])


def test_the_first_settings_that_fit_are_the_remedy(monkeypatch, capsys):
  tried = []

  def compile_step(config, devices):
    tried.append(config.accumulation)
    fits = config.accumulation >= 8
    return compilation.Program(**vars(PROGRAM) | {"fits": fits, "temporary_bytes": 40 * GIB})

  monkeypatch.setattr(compilation, "compile_step", compile_step)
  monkeypatch.setattr(platforms, "devices_of", lambda topology: [jax.devices()[0]] * 64)
  config = compilation.overridden(BASE, {"accumulation": 1})
  row = report.report(config, "v3:4x8")
  assert "It does not fit; trying --config.accumulation=4.\n" in capsys.readouterr().err
  assert (row["topology"], row["global_batch"]) == ("v3:4x8", 4096)
  assert tried == [1, 4, 8]  # a half of 40 GiB is still more than a core has
  assert not row["fits"]
  assert row["remedy"]["settings"] == {"accumulation": 8}
  assert row["remedy"]["accumulation"] == 8
  assert row["remedy"]["fits"]


def test_the_accumulation_that_was_chosen_is_told(monkeypatch):
  def compile_step(config, devices):
    return dataclasses.replace(PROGRAM, fits=config.parts >= 8, temporary_bytes=40 * GIB)

  monkeypatch.setattr(compilation, "compile_step", compile_step)
  monkeypatch.setattr(platforms, "devices_of", lambda topology: [jax.devices()[0]] * 64)
  row = report.report(compilation.overridden(BASE, {"accumulation": AUTO}), "v3:4x8")
  assert (row["fits"], row["remedy"], row["chosen"]) == (True, None, {"accumulation": 8})
  assert words.table(row).splitlines()[1] == "chosen so that it fits: --config.accumulation=8"
  done = subprocess.CompletedProcess([], 0, json.dumps(row), "")
  monkeypatch.setattr(table.subprocess, "run", lambda *_, **__: done)
  assert table.compiled("configs/a.py", "v3:4x8", [])["settings"] == "accumulation=8"
  small = report.report(compilation.overridden(BASE, {"accumulation": 8}), "v3:4x8")
  assert (small["chosen"], "chosen" in words.table(small)) == ({}, False)


def small_table(folder, names, today=lambda row: "now"):
  """The table of some recipes for TPUs, in a folder; no flags, and a page without text."""
  (folder / "docs").mkdir()
  docs = dict(csv=folder / "docs/compiled.csv", path=folder / "docs/compiled.md", page=str)
  pairs = lambda: [(f"configs/{name}.py", "v3:4x4") for name in names]
  return dataclasses.replace(compiled_recipes.TABLE, **docs, pairs=pairs, today=today)


def test_rows_are_of_the_program_that_fits_and_none_is_made_twice(tmp_path, monkeypatch, capsys):
  today = lambda row: {"a.py": "first", "b.py": "second"}[row["recipe"]]
  monkeypatch.setitem(compile_table.TABLES, "tpu", small_table(tmp_path, "ab", today))
  ran = []

  def run(command, **_):
    assert command[1:4] == ["-m", commands.__name__, "compile-check"]
    ran.append([part for part in command if part.startswith("--")])
    if "--config=configs/b.py" in command:
      return subprocess.CompletedProcess(command, 1, "", "no compiler")
    refused = dict(topology="v3:4x4", devices=32, fits=False, peak_bytes=9, hbm_bytes=8)
    fitting = dict(devices=32, fits=True, peak_bytes=7, hbm_bytes=8, step_seconds_estimate=0.5)
    fitting["made_from"] = "first"
    remedy = {"settings": {"accumulation": 2}} | fitting
    return subprocess.CompletedProcess(command, 1, json.dumps(refused | {"remedy": remedy}), "")

  monkeypatch.setattr(table.subprocess, "run", run)
  for wanted in (2, 1):
    with pytest.raises(SystemExit, match="1"):
      compile_table.main(["--topologies=v3:4x4"])
    said = capsys.readouterr().err
    assert "configs/b.py on v3:4x4 failed:\nno compiler" in said
    assert f"1 of {wanted} rows are missing" in said
  configs = [flags[0] for flags in ran]
  assert sorted(configs) == ["--config=configs/a.py"] + ["--config=configs/b.py"] * 2
  (row,) = csv.DictReader((tmp_path / "docs/compiled.csv").read_text().splitlines())
  assert (row["recipe"], row["settings"], row["fits"]) == ("a.py", "accumulation=2", "True")
  assert (row["peak_bytes"], row["step_seconds_estimate"]) == ("7", "0.5")


def test_rows_of_another_program_are_made_again_after_the_missing_ones(tmp_path):
  names = ("same", "changed", "unnamed", "missing")
  small = small_table(tmp_path, names)
  row = lambda name, made_from: (
    dict.fromkeys(small.fields, "")
    | dict(recipe=f"{name}.py", topology="v3:4x4", made_from=made_from)
  )
  small.write([row("same", "now"), row("changed", "before"), row("unnamed", "")])
  found = small.missing(small.read(), ["v3:4x4"], "")
  assert [pair[0] for pair in found] == [f"configs/{name}.py" for name in (*names[3:], *names[1:3])]
  old = small.csv.read_text().replace(",made_from", "").replace(",now", "").replace(",before", "")
  small.csv.write_text(old)  # a table of an earlier version
  assert len(small.missing(small.read(), ["v3:4x4"], "")) == 4


def test_a_row_takes_the_place_of_that_of_its_pair(tmp_path, monkeypatch):
  small = small_table(tmp_path, "ab")
  rows = [dict.fromkeys(small.fields, "") | dict(recipe=name, topology="t") for name in "ab"]
  made = lambda recipe, topology, flags: dict(recipe=recipe, topology=topology, made_from="new")
  monkeypatch.setattr(table, "compiled", made)
  assert list(small.complete(rows, [("a", "t")], jobs=1)) == ["a t"]
  assert [(row["recipe"], row["made_from"]) for row in small.read()] == [("b", ""), ("a", "new")]


def test_the_program_of_a_row_is_that_of_its_settings(monkeypatch):
  seen = []
  monkeypatch.setattr(platforms, "devices_of", lambda topology: [topology])
  monkeypatch.setattr(compilation, "step_name", lambda *args: seen.append(args))
  row = dict(recipe="vit_l16_jft.py:14", topology="v3:4x4", settings="accumulation=2 mesh.fsdp=4")
  table.name_today(row)
  table.name_today(dict(recipe="vit_b16_jft.py", topology="h100:8", global_batch="64"))
  (config, devices), (largest, _) = seen
  assert (config.accumulation, config.mesh.fsdp, devices) == (2, 4, ["v3:4x4"])
  assert (config.duration.epochs, largest.batch_size) == (14, 64)
