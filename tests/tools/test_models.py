"""The page of all models is current, and its numbers are those that others publish."""

import csv

from tests import programs
from tools import models as tool
from vit_jax import models
from vit_jax.config.model import our_name


def test_the_page_is_current():
  found = (programs.ROOT / "docs/models.md").read_text(encoding="utf-8")
  assert found == tool.page(), "run: python tools/models.py --output docs/models.md"
  part = found[: found.index("## Accuracy")]
  rows = [line.split(" | ") for line in part.splitlines() if line.startswith("| ")]
  sizes = {row[0].removeprefix("| "): row[1] for row in rows}
  assert sizes.keys() - {"model", "---"} == {*models.names()}
  # torchvision's vit_b_16 and vit_l_32, timm's vit_tiny_patch16_224 and resnetv2_50x1_bit
  known = {"ViT-B/16": 86_567_656, "ViT-L/32": 306_535_400}
  known |= {"ViT-Ti/16": 5_717_416, "R50x1": 25_549_352}
  assert {name: int(sizes[name].replace(",", "")) for name in known} == known


def test_names_of_published_weights_are_translated_to_the_model_of_their_row():
  with open(programs.ROOT / "docs/published_weights.csv", newline="") as lines:
    rows = list(csv.DictReader(lines))
  for row in rows:
    for name in filter(None, (row["google"], row["timm"], row["transformers"])):
      assert our_name(name.split("/")[-1]) == row["model"], name
