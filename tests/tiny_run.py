"""A run of five steps on the digits, made in this process."""

import contextlib
import pathlib

import jax

from tests import resolved
from vit_jax import config as c
from vit_jax import launch
from vit_jax.evaluation.classification import Classification
from vit_jax.learning.optimizers.adam import Adam
from vit_jax.process.console import StopRequest

CONFIG = resolved.config(
  batch_size=32,
  accumulation=1,
  duration=c.Duration(steps=5),
  log_every=c.Duration(steps=1),
  evaluate_every=c.Duration(steps=5),
  model=c.Model(
    name="ViT-Ti/4",
    num_classes=10,
    depth=1,
    width=8,
    mlp_dim=16,
    heads=2,
    dropout=0.1,
    compute_dtype="float32",
  ),
  optimizer=Adam(weight_decay=0.1, clip_norm=1.0, ema=0.9, ema_corrected=False),
  loss=c.Loss(kind="softmax"),
  schedule=c.Schedule(learning_rate=3e-3, warmup=c.Duration(steps=2)),
  data=c.Data(
    train=c.Dataset("digits", "train"),
    image_size=16,
    crop_area=(0.5, 1.0),
    flip=True,
  ),
  evaluate={"test": Classification("digits", "test")},
  checkpoint=c.Checkpoint(every=c.Duration(steps=5)),
  report=False,
)


def train(folder: pathlib.Path) -> pathlib.Path:
  """Trains to the end; returns the workdir."""
  made = resolved.run(CONFIG, jax.devices()[:1])
  with _beside(folder).open("w") as output, contextlib.redirect_stdout(output):
    assert launch.train(made, folder, StopRequest())
  return folder


def console(folder: pathlib.Path) -> str:
  """What the run in this workdir printed."""
  return _beside(folder).read_text()


def _beside(folder):
  return folder.with_name(f"{folder.name}.txt")
