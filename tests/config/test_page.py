"""The page of all settings is current, so that it shows what a change of `page` does."""

import pathlib

from vit_jax.extras.settings_page import page

ROOT = pathlib.Path(__file__).parents[2]


def test_the_page_is_current():
  found = (ROOT / "docs/settings.md").read_text(encoding="utf-8")
  assert found == page(), "run: python tools/settings.py --output docs/settings.md"
