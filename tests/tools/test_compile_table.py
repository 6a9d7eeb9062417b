"""The table of compiled recipes: which rows it has, and how they are written."""

import csv
import dataclasses
import functools
import pathlib
import re

import jax
import pytest

from tests.pages.blocks import blocks, split
from tests.recipes.paper import table
from vit_jax import recipes
from vit_jax.extras.compiled import compiled_on_gpus, compiled_recipes, gpu_targets
from vit_jax.extras.compiled.platform import known
from vit_jax.extras.compiled.table import ROOT
from vit_jax.extras.experiments import step_program


def loaded():
  return [recipes.load(str(ROOT / recipe)) for recipe in compiled_recipes.recipes()]


def test_every_model_of_table_3_and_of_table_6_is_in_it():
  large = {row["model"] for row in table("table6_scaling.csv")}
  pretraining = [config for config in loaded() if config.batch_size == 4096]
  assert large <= {config.model.name for config in pretraining}
  assert {config.model.num_classes for config in pretraining} == {18_291, 21_843, 1000}


def test_every_model_is_fine_tuned_and_those_of_table_2_at_both_resolutions():
  tuned = [config for config in loaded() if config.batch_size == 512]
  found = {(config.model.name, config.data.image_size) for config in tuned}
  assert {("ViT-H/14", 518), ("ViT-H/14", 378), ("ViT-L/16", 512), ("ViT-L/16", 384)} <= found
  pretrained = {config.model.name for config in loaded() if config.batch_size == 4096}
  assert pretrained - {name for name, _ in found} == {"R200x3"}  # in Table 6 alone


def test_the_table_in_the_documents_is_whole_and_says_what_was_compiled():
  docs = ROOT / "docs"
  rows = list(csv.DictReader((docs / "compiled.csv").read_text().splitlines()))
  assert (docs / "compiled.md").read_text() == compiled_recipes.page(rows)
  assert sorted((row["recipe"], row["topology"]) for row in rows) == sorted(
    (recipe.removeprefix("configs/"), topology) for recipe, topology in compiled_recipes.pairs()
  )
  assert {row["fits"] for row in rows} == {"True"}
  assert all(int(row["peak_bytes"]) < int(row["hbm_bytes"]) for row in rows)


def test_recipes_of_later_papers_keep_their_batch_on_gpus():
  for recipe, topology in compiled_on_gpus.pairs():
    largest = "--largest-batch" in compiled_on_gpus.flags(recipe, topology, [])
    assert largest == (recipe in compiled_on_gpus.RECIPES)
  batches = {recipes.load(recipe).batch_size for recipe in compiled_recipes.LATER}
  assert batches == {512, 1024, 2016, 4096}  # each can be divided by 32 devices


def test_a_decision_quotes_its_row_of_the_table():
  docs = ROOT / "docs"
  rows = csv.DictReader((docs / "compiled.csv").read_text().splitlines())
  slices = [row for row in rows if row["recipe"] == "masked_vit_b16_jft.py"]
  (row,) = (row for row in slices if row["topology"] == "v3:16x16")
  text = " ".join((docs / "decisions" / "masked-patches.md").read_text().split())
  step, peak = float(row["step_seconds_estimate"]) * 1e3, int(row["peak_bytes"]) / 2**30
  assert f"{step:.1f} ms a step by the compiler's cycles, {peak:.1f} GiB of 16" in text
  assert f"MFU {float(row['mfu']):.0%}" in text


ON_GPUS = compiled_on_gpus.TABLE.read()
RATES = pathlib.Path(__file__).parents[1] / "extras/compiled/published_rates.csv"
PUBLISHED = list(csv.DictReader(RATES.read_text().splitlines()))


def _name(row):
  return f"{row['recipe']} {row['topology']}"


def test_the_table_of_gpus_in_the_documents_is_that_of_its_rows():
  assert compiled_on_gpus.PATH.read_text() == compiled_on_gpus.page(ON_GPUS)
  assert {row["fits"] for row in ON_GPUS} == {"True"}
  assert all(row["made_from"] for row in ON_GPUS)


@functools.cache
def state_bytes(recipe):
  """Parameters, moments, and what else a step changes."""
  config = recipes.load(f"configs/{recipe}")
  model = dataclasses.replace(config.model, scan=config.model.name.startswith("ViT"))
  run = step_program.planned(dataclasses.replace(config, model=model), jax.devices()[:1])
  return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(run.abstract))


@pytest.mark.parametrize("row", ON_GPUS, ids=_name)
def test_a_row_needs_its_state_and_batch_and_no_more_than_jax_takes(row):
  images = int(row["global_batch"]) / int(row["devices"])
  needed = state_bytes(row["recipe"]) + images * int(row["image_size"]) ** 2 * 3
  assert needed < int(row["peak_bytes"]) <= float(row["usable_bytes"])


@pytest.mark.parametrize("row", ON_GPUS, ids=_name)
def test_the_matmuls_of_a_row_are_those_of_our_own_count(row):
  """Attention computes its logits again in the backward pass, and one token may be padding."""
  kind = gpu_targets.TARGETS[row["topology"].partition(":")[0]].kind
  flops = float(row["matmul_seconds_bound"]) * known(kind).peak_flops
  assert 0.99 < flops / float(row["flops_per_device"]) < 1.15
  assert float(row["matmul_seconds_bound"]) < float(row["step_seconds_bound"])


@pytest.mark.parametrize("published", PUBLISHED, ids=_name)
def test_nobody_was_faster_than_the_bound_of_a_row(published):
  """Of the same model, trained on labels, on images of the same size and the same GPUs."""
  same = ("topology", "image_size")
  its = recipes.load(published["recipe"])
  each = float(published["images_per_second"]) / int(published["topology"].partition(":")[2])
  for row in ON_GPUS:
    recipe = recipes.load(f"configs/{row['recipe']}")
    alike = (recipe.model.name, recipe.objective) == (its.model.name, its.objective)
    if alike and all(row[key] == published[key] for key in same):
      assert each < float(row["images_per_second_per_device_bound"])


OF_DEVICES = ("tpu.md", "gpus.md", "hosts.md", "systems.md")
# A run of a recipe that is not the demo, and what it changes that a step depends on.
RUN = re.compile(r"vit-jax train (?!vit_digits)(\w+)(\S*)(.*)")
SETTING = re.compile(r"--config\.(?!data\.)(\S+)")


def commands(page):
  """Of the runs on a page: (recipe, settings, topology), the last one None if no mark names it."""
  for block in blocks((ROOT / "docs" / page).read_text()):
    for name, argument, flags in RUN.findall(block.text.replace("\\\n", "")):
      for topology in split(block.marks.get("compiled for", "")) or [None]:
        yield f"{name}.py{argument}", " ".join(SETTING.findall(flags)), topology


def compiled_rows():
  return {(r["recipe"], r["topology"]): r for r in compiled_recipes.TABLE.read() + ON_GPUS}


@pytest.mark.parametrize("page", OF_DEVICES)
def test_each_run_on_a_page_about_devices_was_compiled_for_them_and_fits(page):
  """Parts of a batch that no setting gives are the fewest that fit, which is what a row has."""
  rows = compiled_rows()
  for recipe, settings, topology in commands(page):
    row = rows[recipe, topology]
    without_parts = re.sub(r" ?accumulation=\d+", "", row["settings"]).strip()
    assert row["fits"] == "True"
    assert settings in (row["settings"], without_parts), (recipe, topology)


def test_runs_are_found_on_the_pages_about_devices():
  found = [command for page in OF_DEVICES for command in commands(page)]
  assert ("vit_b16_i1k.py", "", "v5e:2x4") in found
  assert len(found) == 11
