"""A small model, small datasets in the form of published ones, and their evaluation."""

import dataclasses
import functools

import jax
import numpy as np
import tensorflow_datasets as tfds

from tests.data import tfds_fixture
from tests.extras.sources import objectnet_fixture
from vit_jax import config as c
from vit_jax import models
from vit_jax.data import images
from vit_jax.data.classes import imagenet_classes
from vit_jax.evaluation import evaluate, evaluated_model
from vit_jax.evaluation.evaluations import open_alone
from vit_jax.launch import reader_of
from vit_jax.training.facts import of_devices

SIDE = 8
MODEL = c.Model(name="ViT-Ti/4", depth=1, width=16, mlp_dim=16, heads=2, compute_dtype="float32")


def parameters(classes):
  """Random parameters of a small model, and its module."""
  module = models.configured(dataclasses.replace(MODEL, num_classes=classes))
  blank = np.zeros((1, SIDE, SIDE, 3), np.float32)
  shapes = jax.eval_shape(lambda: module.init(jax.random.key(0), blank, train=False))["params"]
  rng = np.random.default_rng(0)
  draw = lambda leaf: rng.normal(0, 0.5, leaf.shape).astype(np.float32)
  return module, jax.tree.map(draw, shapes)


def evaluated(config, folder):
  """The metrics of a config, computed as --mode=evaluate does it, in this process."""
  opened = open_alone(config, ())
  read = evaluated_model.read_evaluated(config, opened, folder, frozenset(), of_devices())
  reader = reader_of(read.settings, opened)
  evaluate.check_folder(read, folder)
  return evaluate.evaluate(read, opened, reader, folder, stall_seconds=60.0)


def seen(module, params, pixels):
  """Logits of images (N, S, S, 3) uint8, and their features by representation."""
  scaled = (np.stack(pixels).astype(np.float32) - 127.5) / 127.5
  logits, features = jax.jit(lambda p, x: module.apply({"params": p}, x, train=False))(
    params, scaled
  )
  found = dict(pre_logits=features["pre_logits"], patches=features["patches"].mean(axis=1))
  return np.asarray(logits, np.float64), {k: np.asarray(x, np.float64) for k, x in found.items()}


def accuracy(logits, right, *, among=None):
  """Top-1 and top-5 of images whose right classes are not empty, and their number."""
  among = range(logits.shape[1]) if among is None else sorted(among)
  ranks = []
  for row, classes in zip(logits, right, strict=True):
    if classes:
      order = sorted(among, key=lambda k: -row[k])
      ranks.append(min(order.index(k) for k in classes))
  ranks = np.array(ranks)
  return np.mean(ranks < 1), np.mean(ranks < 5), len(ranks)


class Miniatures:
  """Small datasets in the form of published ones, and what a model should score on each.

  Attributes:
    expected: {name: metrics}.
    labels: {name: the right classes of each image}.
  """

  def __init__(self, root, module, params):
    self.root, self.module, self.params = root, module, params
    self.rng, self.expected, self.labels = np.random.default_rng(1), {}, {}
    self.label = tfds.features.ClassLabel(names=list(imagenet_classes()))

  def logits(self, pictures, *, resize):
    look = functools.partial(images.evaluate_image, size=SIDE, resize=resize, max_pixels=10**6)
    return seen(self.module, self.params, [look(picture) for picture in pictures])[0]

  def add(self, name, dataset, split, count, label_of, key="label", among=False, **features):
    """Writes a TFDS dataset; `label_of` chooses its labels by the logits."""
    files = [tfds_fixture.jpeg_of(self.rng) for _ in range(count)]
    logits = self.logits(files, resize=0)
    right = label_of(logits)
    sets = right if key == "real_label" else [[one] for one in right]
    occurring = {k for one in sets for k in one} if among else None
    self.expected[name], self.labels[name] = accuracy(logits, sets, among=occurring), right
    image, text = tfds.features.Image(encoding_format="jpeg"), tfds.features.Text()
    features = dict(image=image, file_name=text) | ({key: self.label} | features)
    examples = [
      {"image": file, "file_name": f"{i}.JPEG", key: one}
      | ({"original_label": 0} if "original_label" in features else {})
      for i, (file, one) in enumerate(zip(files, right, strict=True))
    ]
    tfds_fixture.write(self.root, dataset, features, {split: examples})

  def add_objectnet(self, folder):
    """Writes a folder of ObjectNet's form, of three classes."""
    draw = lambda: self.rng.integers(0, 256, (*self.rng.integers(9, 30, 2), 3)).astype(np.uint8)
    shown = {name: [draw() for _ in range(3)] for name in objectnet_fixture.CLASSES}
    pictures = [x for several in shown.values() for x in several]
    logits = self.logits(pictures, resize=round(SIDE * 512 / 480))
    best = int(logits[3].argmax())  # of the first helmet
    classes = dict(bench=[7], helmet=sorted({best, 900}), spoon=[])
    sets = [classes[name] for name in shown for _ in range(3)]
    self.expected["objectnet"] = accuracy(logits, sets)
    objectnet_fixture.write(folder, shown)
    names = {"Bench": "seat 7", "Helmet (any)": f"seat {best}; seat 900"}
    objectnet_fixture.write_mappings(folder / "mappings", objectnet_to_imagenet_1k=names)


def several_or_none(logits):
  """Nothing, one, or several right classes for each image."""
  order = np.argsort(-logits, axis=1)
  return [[int(k) for k in row[[3, 0, 9]][: i % 4]] for i, row in enumerate(order)]
