"""The table of compiled recipes: which rows it has, and how they are written."""

import csv
import pathlib

from compiled import compiled_recipes
from compiled.table import ROOT
from vit_jax import recipes

PAPER = pathlib.Path(__file__).parents[1] / "paper"


def loaded():
  return [recipes.load(str(ROOT / recipe)) for recipe in compiled_recipes.recipes()]


def test_every_model_of_table_3_and_of_table_6_is_in_it():
  rows = csv.DictReader((PAPER / "table6_scaling.csv").read_text().splitlines())
  large = {row["model"] for row in rows}
  pretraining = [config for config in loaded() if config.batch_size == 4096]
  assert large <= {config.model.name for config in pretraining}
  assert {config.model.num_classes for config in pretraining} == {18_291, 21_843, 1000}


def test_every_model_is_fine_tuned_and_those_of_table_2_at_both_resolutions():
  tuned = [config for config in loaded() if config.batch_size == 512]
  found = {(config.model.name, config.data.image_size) for config in tuned}
  assert {("ViT-H/14", 518), ("ViT-H/14", 378), ("ViT-L/16", 512), ("ViT-L/16", 384)} <= found
  pretrained = {config.model.name for config in loaded() if config.batch_size == 4096}
  assert pretrained - {name for name, _ in found} == {"R200x3"}  # in Table 6 alone
  assert "each model but R200x3" in compiled_recipes.page([])


def test_the_table_in_the_documents_is_whole_and_says_what_was_compiled():
  docs = ROOT / "docs"
  rows = list(csv.DictReader((docs / "compiled.csv").read_text().splitlines()))
  assert (docs / "compiled.md").read_text() == compiled_recipes.page(rows)
  assert sorted((row["recipe"], row["topology"]) for row in rows) == sorted(
    (recipe.removeprefix("configs/"), topology)
    for recipe in compiled_recipes.recipes()
    for topology in compiled_recipes.TOPOLOGIES
  )
  assert {row["fits"] for row in rows} == {"True"}
  assert all(int(row["peak_bytes"]) < int(row["hbm_bytes"]) for row in rows)


def test_a_decision_quotes_its_row_of_the_table():
  docs = ROOT / "docs"
  rows = csv.DictReader((docs / "compiled.csv").read_text().splitlines())
  slices = [row for row in rows if row["recipe"] == "masked_vit_b16_jft.py"]
  (row,) = (row for row in slices if row["topology"] == "v3:16x16")
  text = " ".join((docs / "decisions" / "masked-patches.md").read_text().split())
  step, peak = float(row["step_seconds_estimate"]) * 1e3, int(row["peak_bytes"]) / 2**30
  assert f"{step:.1f} ms a step by the compiler's cycles, {peak:.1f} GiB of 16" in text
  assert f"MFU {float(row['mfu']):.0%}" in text
