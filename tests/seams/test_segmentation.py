"""A linear probe that segments is this file and its lines: a source, an objective, an evaluation.

Each pixel of an image has a class: what it shows, or 255 where nobody knows. The classes follow
crop and flip, and the probe predicts them from the features of the patches.
"""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests import resolved
from tests.seams import program
from vit_jax import recipes, registry
from vit_jax.config import ConfigError, Dataset, ObjectiveSettings, View
from vit_jax.config.fields import name_of_kind
from vit_jax.data.batches import normalize
from vit_jax.data.sources import Example, Source
from vit_jax.data.sources.base import Field
from vit_jax.evaluation.spec import EvaluationSpec, Evaluator, Metric, Result, add, one_behind
from vit_jax.learning.objective import OBJECTIVE_PARAMS, Objective, Sums
from vit_jax.models import vit_costs
from vit_jax.storage import metrics_log

pytestmark = pytest.mark.usefixtures("one_device")

CLASSES, SIDE, PATCH, UNKNOWN = 3, 16, 4, 255
COLOURS = np.uint8([[230, 20, 20], [20, 230, 20], [20, 20, 230]])
PIXELS = Field((), "uint8", padding=UNKNOWN, dense=True)


class Shapes(Source):
  """Rectangles of two colours on a third; their class is their colour, unknown at the left edge."""

  form = "shapes:COUNT"
  class_names = ()
  fields: ClassVar = {"pixels": PIXELS}

  def __init__(self, count, *, split):
    self._count, self._first = int(count), {"train": 0, "test": 10**6}[split]
    self.identity = f"shapes {split} {count}"

  def __len__(self):
    return self._count

  def __getitem__(self, index):
    rng = np.random.default_rng(self._first + index)
    height, width = rng.integers(20, 40, 2)
    classes = np.zeros((height, width), np.uint8)
    for kind in (1, 2):
      top, left = rng.integers(0, height // 2), rng.integers(0, width // 2)
      classes[top : top + height // 2, left : left + width // 3] = kind
    image = COLOURS[classes]
    classes[:, 0] = UNKNOWN
    return Example(image, (), f"shapes {index}", {"pixels": classes})

  def labels(self, index):
    return ()

  @classmethod
  def named_parts(cls, argument):
    return {split: (argument, split) for split in ("train", "test")}


def features(model, params, images):
  """The patches (B, rows, columns, D) of uint8 images."""
  seen = model.apply(
    {"params": params}, normalize(images, model.dtype), train=False, method="features"
  )
  rows, columns = model.grid(*images.shape[1:3])
  return seen["patches"].reshape(len(images), rows, columns, -1)


def classes_of(model, params, images):
  """Logits (B, S, S, CLASSES): those of a patch for each of its pixels."""
  probe = params[OBJECTIVE_PARAMS]
  logits = features(model, params, images) @ probe["kernel"] + probe["bias"]
  return logits.repeat(model.patch, axis=1).repeat(model.patch, axis=2)


@dataclasses.dataclass(frozen=True)
class Settings(ObjectiveSettings):
  """Segmentation."""

  kind: str = name_of_kind("segmentation", "the class of each pixel")

  def fields(self, data):
    return {"pixels": PIXELS}

  def configured(self, config, model):
    return Segmentation(model)


@dataclasses.dataclass(frozen=True)
class Segmentation(Objective):
  """The cross-entropy of all pixels whose class is known; a metric of their accuracy."""

  model: object

  def init(self, key, image_size):
    images = jnp.zeros((1, image_size, image_size, 3))
    params = self.model.init(key, images, train=False, method="features")["params"]
    probe = {"kernel": jnp.zeros((self.model.width, CLASSES)), "bias": jnp.zeros(CLASSES)}
    return params | {OBJECTIVE_PARAMS: probe}

  def prepare(self, batch, key):
    return batch

  def loss(self, params, extra, batch, key):
    logits, pixels = classes_of(self.model, params, batch["image"]), batch["pixels"]
    known = (pixels < CLASSES) * batch["mask"][:, None, None]
    labels = jnp.minimum(pixels, CLASSES - 1)
    values = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    right = (jnp.argmax(logits, axis=-1) == labels) * known
    return Sums(jnp.sum(values * known), known.sum(), {"pixels": (right.sum(), known.sum())})

  def training_flops(self, image_size):
    return vit_costs.training_flops(self.model.macs(image_size, image_size))


@dataclasses.dataclass(frozen=True, kw_only=True)
class IntersectionOverUnion(Dataset, EvaluationSpec):
  """Mean intersection over union."""

  metrics: ClassVar = (Metric("mean_iou", curve="accuracy", headline=True),)

  kind: str = name_of_kind("mean_iou", "intersection over union of the predicted pixels")

  def datasets(self):
    return {"": self}

  def names(self, config):
    return ("mean_iou",)

  def open(self, key, data):
    images = data.opener.open(key, self)
    data.check_apart(images)
    data.check_fields(key, images, {"pixels": PIXELS})
    return Scores(self, images.source)

  @staticmethod
  def in_words(metric, metrics):
    return f"mean IoU {metrics[metric]:.2%}"


@dataclasses.dataclass(frozen=True)
class Scores(Evaluator):
  """The set."""

  settings: IntersectionOverUnion
  source: object

  def score(self, context, params):
    step, totals = context.compiled(make_step), {}
    read = context.reader.evaluation(
      self.source, resize=0, squeeze=False, fields={"pixels": PIXELS}
    )
    with context.batches(read) as batches:
      for sums in one_behind(step(params, batch) for batch in batches):
        add(totals, sums)
    return Result({"mean_iou": float((totals["both"] / totals["either"]).mean())})


def make_step(model):
  def step(params, batch):
    found = jnp.argmax(classes_of(model, params, batch["image"]), axis=-1)
    pixels, kinds = batch["pixels"][..., None], jnp.arange(CLASSES)
    known = (pixels < CLASSES) & (batch["mask"][:, None, None, None] > 0)
    truth, found = (pixels == kinds) & known, (found[..., None] == kinds) & known
    total = lambda x: jnp.sum(x, axis=(0, 1, 2), dtype=jnp.float32)
    return dict(both=total(truth & found), either=total(truth | found))

  return step


WORDS = (
  "--config.objective.kind=segmentation",
  "--config.data.train.source=shapes:64",
  "--config.data.train.split=train",
  "--config.evaluate.test.kind=mean_iou",
  "--config.evaluate.test.source=shapes:20",
  "--config.evaluate.test.split=test",
  "--config.model.positions=none",
  "--config.model.width=32",
  "--config.optimizer.trainable=objective/.*",
  "--config.schedule.learning_rate=0.03",
  "--config.data.crop_area=(0.3,1.0)",
)


@pytest.fixture(autouse=True)
def lines(monkeypatch):
  here = "tests.seams.test_segmentation"
  monkeypatch.setitem(registry.OBJECTIVES, "segmentation", f"{here}:Settings")
  monkeypatch.setitem(registry.SOURCES, "shapes", f"{here}:Shapes")
  monkeypatch.setitem(registry.EVALUATIONS, "mean_iou", f"{here}:IntersectionOverUnion")


def test_it_learns_what_the_pixels_show_and_is_scored(tmp_path, capsys):
  assert program.run(tmp_path, *WORDS, "--config.duration.steps=40", "--config.data.flip=true")
  first, *_, last = [line for line in metrics_log.read_lines(tmp_path) if "training/pixels" in line]
  assert first["training/pixels"] < 0.6 < 0.8 < last["training/pixels"]
  (scored,) = [line for line in metrics_log.read_lines(tmp_path) if "test/mean_iou" in line]
  assert scored["test/mean_iou"] > 0.5
  assert "test: mean IoU" in capsys.readouterr().out


CROPS = {
  "inception": (),
  "square": ("--config.data.train_resize=20",),
  "padded": ("--config.data.train_pad=3",),
}


@pytest.mark.parametrize("crop", CROPS)
def test_the_classes_of_a_batch_are_those_of_its_pixels(crop):
  config = recipes.resolve("configs/vit_digits.py", (*program.SMALL, *WORDS, *CROPS[crop]))
  run = resolved.run(config, jax.devices()[:1])
  with run.batches() as batches:
    for _, batch in zip(range(4), batches, strict=False):
      image, pixels = np.asarray(batch["image"]), np.asarray(batch["pixels"])
      assert pixels.shape == image.shape[:3]
      known = pixels < CLASSES
      nearest = np.abs(image[..., None, :].astype(int) - COLOURS).sum(-1).argmin(-1)
      assert (nearest == pixels)[known].mean() > 0.97  # all but blended borders
      assert set(np.unique(pixels)) <= {*range(CLASSES), UNKNOWN}


@pytest.mark.parametrize(
  ("word", "message"),
  [
    ("data.train.source=digits", r"'pixels', and config\.data\.train .* has none beside"),
    (
      "evaluate.test.source=digits",
      r"config\.evaluate\.test needs the field 'pixels', .* has none",
    ),
    ("data.augment=[{'kind': 'rand_augment'}]", r"rand_augment, which moves pixels"),
    ("data.cache=CACHE", r"data\.cache='CACHE' holds images and labels alone"),
  ],
)
def test_what_would_not_keep_the_classes_is_refused(word, message, tmp_path):
  with pytest.raises(ConfigError, match=message):
    program.run(tmp_path, *WORDS, f"--config.{word}")


class Augmented(Settings):
  """Whose images are augmented alone."""

  def views(self, data):
    turned = (registry.AUGMENTATIONS["rand_augment"](),)
    return {"image": View(dataclasses.replace(data, augment=turned))}


def test_an_augmentation_of_the_image_alone_is_seen_too(tmp_path, monkeypatch):
  monkeypatch.setitem(registry.OBJECTIVES, "segmentation", f"{__name__}:Augmented")
  with pytest.raises(ConfigError, match="has rand_augment, which moves pixels"):
    program.run(tmp_path, *WORDS)
