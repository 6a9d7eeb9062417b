"""Curves of runs, however short the run is."""

import json

import numpy as np
import pytest
from PIL import Image

from vit_jax.evaluation import registry
from vit_jax.plots import curves
from vit_jax.storage import metrics_log

TRAINED = [{"step": step, "loss": 1 / step, "learning_rate": 0.1 * step} for step in (1, 2, 3)]
SCORED = [{"step": 3, "val/top1": 0.5, "val/loss": 2.0}]


def drawn(folder, lines):
  """For each of the three plots, from the top, whether it has coloured lines."""
  (folder / metrics_log.METRICS).write_text("".join(json.dumps(line) + "\n" for line in lines))
  curves.curves(folder, registry.curve)
  with Image.open(folder / curves.CURVES) as image:
    pixels = np.asarray(image.convert("RGB")).astype(int)
  coloured = np.ptp(pixels, axis=2) > 50
  thirds = np.array_split(coloured, 3)
  return [bool(part[len(part) // 4 : -len(part) // 4].any()) for part in thirds]


@pytest.mark.parametrize(
  ("lines", "expected"),
  [
    ([], [False, False, False]),
    (SCORED, [True, True, False]),  # it ended before it logged anything
    (TRAINED, [True, False, True]),
    (TRAINED + SCORED, [True, True, True]),
  ],
)
def test_what_there_is_is_drawn(tmp_path, lines, expected):
  assert drawn(tmp_path, lines) == expected
