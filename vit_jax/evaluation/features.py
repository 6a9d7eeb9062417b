"""Features, a model's output before its head, and the base of evaluations that use only these."""

import dataclasses

import numpy as np
from etils import epy

from vit_jax.config import AUTO, Config, ConfigError, Dataset
from vit_jax.config.fields import Rule, group, setting
from vit_jax.evaluation.spec import EvalContext, EvaluationSpec, RunData, one_behind

with epy.lazy_imports():
  import jax

  from vit_jax.data import batches, classes, sources
  from vit_jax.inference import layers


def as_trained(representation) -> tuple[str, str]:
  """What the weights are trained for."""
  return representation(), ""


@dataclasses.dataclass(frozen=True)
class FeatureSpec(EvaluationSpec):
  """Settings of an evaluation that learns classes from the features of training images.

  It is left out if both sources are empty.
  """

  train: Dataset = group(Dataset)
  test: Dataset = group(Dataset)
  representation: str = setting(
    AUTO,
    "features: the input of the head (`pre_logits`), or the mean of the encoder's outputs at the "
    "patches (`patches`)",
    auto=Rule(
      ("facts.representation",),
      "the weights: patches if they were trained by masked_patches, else pre_logits",
      as_trained,
    ),
    choices=("pre_logits", "patches"),
  )

  def datasets(self) -> dict[str, Dataset]:
    """The training images and the test images."""
    return {"train": self.train, "test": self.test}

  def check(self, key: str, config: Config):
    """Refuses one source without the other."""
    if bool(self.train.source) != bool(self.test.source):
      there, missing = ("train", "test") if self.train.source else ("test", "train")
      raise ConfigError(
        f"{key}.{there}.source has no effect without {key}.{missing}.source; give both, or make "
        "both empty."
      )

  def open_both(self, key: str, data: RunData) -> tuple["sources.Source", "sources.Source"]:
    """The training and the test source, whose classes agree; `key` as for `open`.

    Raises:
      ConfigError: the classes do not agree; an image may have several labels; or the test set
        shares images with the training images or with the data that the run trains on.
      SourceError: data is missing.
    """
    train = data.opener.labelled(f"{key}.train", self.train)
    test = data.opener.labelled(f"{key}.test", self.test)
    test = classes.matched(test, train.source.class_names, f"{key}.train")
    for named in (train, test):
      if named.source.multi_label:
        raise ConfigError(
          f"{named.key} has images with any number of labels, but each image must have exactly "
          "one; name another label_key or dataset."
        )
    data.check_apart(test, train)
    return train.source, test.source


def features_of(model, params, images: "jax.Array", representation: str) -> "jax.Array":
  """The features (B, D), float32, of uint8 images (B, S, S, 3).

  Args:
    model, params: the network; its head is not needed.
    images: the images.
    representation: "pre_logits", the input of the head; or "patches", the mean of the encoder's
      outputs at the patches.
  """
  images = batches.normalize(images, model.dtype)
  seen = model.apply({"params": params}, images, train=False, method="features")
  return layers.representation(seen, representation)


def make_step(model, representation: str):
  """The function (params, batch) -> features (B, D), labels (B,) and mask (B,) of a batch."""

  def step(params, batch):
    features = features_of(model, params, batch["image"], representation)
    return dict(features=features, labels=batch["labels"], mask=batch["mask"])

  return step


def of_source(
  context: EvalContext,
  params,
  source: "sources.Source",
  representation: str,
  part: str = "",
  **resizing,
) -> tuple[np.ndarray, np.ndarray]:
  """Features (N, D) float32 and labels (N,) of all images of a source, in order, on every host.

  Args:
    context, params, source: the model and the images.
    representation: as in `features_of`.
    part: names the source in the progress, if the evaluation has several.
    **resizing: passed to `Reader.evaluation`.

  Raises:
    EvaluationInterrupted: the run was asked to stop.
    BadImage, OSError: an image cannot be read.
    NotFinite: features are not finite.
  """
  step = context.compiled(make_step, representation)
  with context.batches(context.reader.evaluation(source, **resizing), part) as batches:
    results = one_behind(step(params, batch) for batch in batches)
    pairs = [counted(rows) for rows in results]
  features, labels = map(np.concatenate, zip(*pairs, strict=True))
  layers.check_finite(features)
  return features, labels


def counted(rows) -> tuple[np.ndarray, np.ndarray]:
  """The features and labels of a batch's images whose mask is 1."""
  rows = jax.device_get(rows)
  counts = rows["mask"] > 0
  return rows["features"][counts], rows["labels"][counts]


def unit(features: np.ndarray) -> np.ndarray:
  """Features (N, D) divided by their length."""
  return features / np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-12)
