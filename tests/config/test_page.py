"""The page of all settings is current."""

import dataclasses
import pathlib

from vit_jax import config
from vit_jax.extras.settings_page import groups, page

ROOT = pathlib.Path(__file__).parents[2]


def test_the_page_is_current():
  found = (ROOT / "docs/settings.md").read_text(encoding="utf-8")
  assert found == page(), "run: python tools/settings.py --output docs/settings.md"


def test_every_setting_has_its_line():
  lines = [line for line in page().splitlines() if line.startswith("| `")]
  settings = [field for kind in groups() for field in dataclasses.fields(kind)]
  assert len(lines) == len(settings)
  named = {line.split("`")[1].removesuffix(".NAME") for line in lines}
  assert set(config.to_dict(config.Config())) <= named


def test_a_table_stays_one_whatever_its_texts_hold():
  tables = [line for line in page().splitlines() if line.startswith("|")]
  assert {line.count("|") for line in tables} == {4}


def test_groups_that_stand_at_several_keys_name_them():
  assert groups()[config.Duration][:2] == ["config.duration", "config.log_every"]
  assert "config.evaluate.NAME.train with kind=few_shot" in groups()[config.Dataset]
