"""Writes predictions to files."""

import json
import pathlib

from vit_jax.inference.predict import Prediction
from vit_jax.storage import files


def write(path: pathlib.Path, predictions: list[Prediction]):
  """Writes predictions: CSV has a line for each image and class, JSON an object for each image."""
  good = [p for p in predictions if not p.error]
  if path.suffix == ".json":
    rows = [
      {"path": str(p.path), "classes": [{"name": n, "probability": x} for n, x in p.classes]}
      for p in good
    ]
    files.write_text(path, json.dumps(rows, indent=2) + "\n")
  else:
    rows = [
      (p.path, rank, name, probability)
      for p in good
      for rank, (name, probability) in enumerate(p.classes, start=1)
    ]
    files.write_csv(path, [("path", "rank", "class", "probability"), *rows])
