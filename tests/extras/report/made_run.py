"""Workdirs whose files are written without training, with the project's own writers."""

import dataclasses
import json

import numpy as np

from tests import resolved
from vit_jax import config
from vit_jax.evaluation import examples, results
from vit_jax.storage import files, metrics_log, workdir

CONFIG = resolved.config(
  batch_size=32,
  model=config.Model(
    name="ViT-Ti/4",
    depth=1,
    width=16,
    mlp_dim=32,
    heads=2,
    num_classes=3,
    compute_dtype="float32",
  ),
  schedule=config.Schedule(learning_rate=1e-3),
  data=config.Data(train=config.Dataset(source="digits", split="train"), image_size=16),
)
NAMES = ("cat", "dog", "fish")
START = {
  "step": 0,
  "time": "2026-01-02T03:04:05+00:00",
  "command": ["main.py", "--config=configs/vit_digits.py", "--config.batch_size=32"],
  "revision": "0123456789abcdef",
  "versions": {"python": "3.11.7", "jax": "0.10.2"},
  "devices": 8,
  "device_kind": "TPU v3",
  "steps": 100,
  "training_images": 1437,
  "classes": 3,
  "data_notes": ["Left out of 'pets': 1 <hidden>."],
  "parameters": 12_345,
  "trained_parameters": 12_345,
}


def step_line(step, **others):
  """A line of metrics of a step."""
  return {
    "step": step,
    "loss": 2.0 / step,
    "learning_rate": 1e-3,
    "grad_norm": 1.5,
    "update_norm": 0.25,
    "param_norm": 40.0,
    "images_per_second": 320.0 + step,
    "data/images": 32 * step,
    "data/input_wait": 0.125,
    "goodput": 0.5,
    "time/steps": 1.0 * step,
    "time/compile": 3.0,
  } | others


def scored_line(step, top1):
  """A line of metrics of an evaluation."""
  return {"step": step, "test/top1": top1, "test/loss": 1 - top1, "test/examples": 360}


LINES = (step_line(50), scored_line(50, 0.875), step_line(100), scored_line(100, 0.75))


def write(folder, *, lines=LINES, settings=CONFIG, start=START):
  """Writes config.json, metrics.jsonl and starts.jsonl; `start` None: without the last."""
  folder.mkdir(parents=True)
  workdir.write_config(folder, config.to_dict(settings))
  text = "".join(json.dumps(line) + "\n" for line in lines)
  (folder / metrics_log.METRICS).write_text(text)
  if start is not None:
    workdir.add_start(folder, start)
  return folder


def write_set(
  folder,
  *,
  names=NAMES,
  image=lambda row: f"image {row}.png",
  count=60,
  set_name="test",
  number=1,
  **metrics,
):
  """Writes the details of an evaluation; returns labels, predictions and probabilities."""
  rng = np.random.default_rng(0)
  labels = rng.integers(0, len(names), count)
  predictions = np.where(rng.random(count) < 0.7, labels, rng.integers(0, len(names), count))
  probabilities = rng.uniform(0.4, 1, count)
  known = results.Details(names, labels, predictions, probabilities, image)
  path = folder / workdir.DETAILS / str(number) / set_name
  results.write_predictions(path, known)
  rows = examples.chosen(labels, predictions, probabilities)
  pixels = lambda row: rng.integers(0, 256, (16, 16, 3)).astype(np.uint8)
  examples.write(path / examples.IMAGES, examples.read_images(rows, pixels))
  metrics = {"step": 100, "top1": float((labels == predictions).mean()), "ece": 0.0625} | metrics
  files.write_text(path / results.METRICS, json.dumps(metrics))
  return labels, predictions, probabilities


def replaced(**changes):
  """CONFIG with other settings."""
  return dataclasses.replace(CONFIG, **changes)
