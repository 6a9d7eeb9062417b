"""The page of all models is current, and its numbers are those that others publish."""

import csv

from tests import programs
from tools import models as tool
from vit_jax import models
from vit_jax.config.model import our_name

# torchvision's vit_b_16 to vit_h_14, timm's models of the other names; ViT-b is of ViT-S's size.
PUBLISHED = {
  "ViT-Ti/16": 5_717_416,
  "ViT-S/16": 22_050_664,
  "ViT-b/16": 22_050_664,
  "ViT-B/8": 86_576_872,
  "ViT-B/16": 86_567_656,
  "ViT-B/32": 88_224_232,
  "ViT-L/16": 304_326_632,
  "ViT-L/32": 306_535_400,
  "ViT-H/14": 632_045_800,
  "R+ViT-Ti/16": 6_337_704,
  "R26+ViT-S/32": 36_431_912,
  "R26+ViT-B/32": 101_383_976,
  "R50x1+ViT-B/16": 98_659_112,
  "R50x1+ViT-L/32": 328_994_856,
  "R50x1": 25_549_352,
}
IN_MILLIONS = {"R101x1": 44.54, "R50x3": 217.32}  # as timm's page gives them


def test_the_page_is_current():
  found = (programs.ROOT / "docs/models.md").read_text(encoding="utf-8")
  assert found == tool.page(), "run: python tools/models.py --output docs/models.md"
  part = found[: found.index("## Accuracy")]
  rows = [line.split(" | ") for line in part.splitlines() if line.startswith("| ")]
  sizes = {row[0].removeprefix("| "): row[1] for row in rows}
  assert sizes.keys() - {"model", "---"} == {*models.names()}
  counts = {name: int(sizes[name].replace(",", "")) for name in models.names()}
  assert PUBLISHED.items() <= counts.items()
  for name, millions in IN_MILLIONS.items():
    assert round(counts[name] / 1e6, 2) == millions


def test_names_of_published_weights_are_translated_to_the_model_of_their_row():
  with open(programs.ROOT / "docs/published_weights.csv", newline="") as lines:
    rows = list(csv.DictReader(lines))
  for row in rows:
    for name in filter(None, (row["google"], row["timm"], row["transformers"])):
      assert our_name(name.split("/")[-1]) == row["model"], name
