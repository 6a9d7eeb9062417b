"""How well masked patch prediction predicts held-out images, with pictures (Section 4.6)."""

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import numpy as np
from etils import epy

from vit_jax.config import Config, ConfigError, Dataset
from vit_jax.config.fields import name_of_kind
from vit_jax.evaluation.spec import (
  EvalContext,
  EvaluationSpec,
  Evaluator,
  Metric,
  NothingCounts,
  Result,
  RunData,
  add,
  one_behind,
)
from vit_jax.process.errors import check_finite

with epy.lazy_imports():
  import jax
  import jax.numpy as jnp

  from vit_jax.data import by_label, datasets, sources
  from vit_jax.devices import mesh as meshes
  from vit_jax.evaluation import examples as pictures
  from vit_jax.extras.masked_patches import corruption, targets
  from vit_jax.extras.masked_patches import objective as masked_patches
  from vit_jax.learning import objective

SHOWN = 8  # images in the picture
GREY = 128  # of masked patches
PREFIX = "patch_"  # of the names of all metrics
COLUMNS = ("original", "corrupted", "predicted")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reconstruction(Dataset, EvaluationSpec):
  """Held-out images whose corrupted patches are predicted and drawn.

  It needs config.objective.kind=masked_patches; a set with an empty source is left out.
  """

  metrics: ClassVar = (
    Metric("patch_loss", curve="loss", smaller_is_better=True, headline=True),
    Metric("patch_constant_loss", curve="", smaller_is_better=True),
    Metric(r"patch_accuracy\w*"),
    Metric(r"patch_squared_error\w*", curve="", smaller_is_better=True),
  )

  kind: str = name_of_kind("reconstruction", "how well corrupted patches are predicted")

  def datasets(self) -> dict[str, Dataset]:
    """The set itself."""
    return {"": self}

  def names(self, config: Config) -> list[str]:
    """The loss, the best constant's, and `measures`; a kind that no patch has gives none."""
    target = targets.TARGETS[config.objective.target]
    return [PREFIX + name for name in ("loss", "constant_loss", *measures(target))]

  def check(self, key: str, config: Config):
    """Refuses a run that does not predict patches."""
    kind = config.objective.kind
    if self.source and not isinstance(config.objective, masked_patches.Masked):
      raise ConfigError(
        f"{key} predicts corrupted patches, which config.objective.kind={kind!r} does not learn; "
        "leave its source empty, or use --config.objective.kind=masked_patches."
      )

  def open(self, key: str, data: RunData) -> "HeldOut":
    """Opens the images; refuses those that are trained on."""
    scored = data.opener.open(key, self)
    data.check_apart(scored)
    return HeldOut(self, data.config.objective, scored.source)

  @staticmethod
  def in_words(metric: str, metrics: Mapping[str, float]) -> str:
    """The loss beside that of the best constant."""
    return f"patch loss {metrics[metric]:.4f} (constant {metrics[PREFIX + 'constant_loss']:.4f})"


@dataclasses.dataclass(frozen=True)
class HeldOut(Evaluator):
  """Held-out images, each corrupted in the same way at every evaluation.

  Attributes:
    settings: of the evaluation.
    masked: config.objective.
    source: the images; labels, if any, are used only to choose the images of the picture.
  """

  settings: Reconstruction
  masked: "masked_patches.Masked"
  source: "sources.Source"

  @functools.cached_property
  def places(self) -> list[int]:
    """Indices in the source of the images for the picture; reads labels."""
    return by_label.of_source(self.source, SHOWN)

  def score(self, context: EvalContext, params) -> Result:
    """Loss and measure over all images, and a picture of a few, of all classes."""
    target = self.masked.target
    check_layer(params, context.model, target)
    step = context.compiled(make_step, self.masked.rate, target)
    totals = {}
    shown = []
    with context.batches(context.reader.evaluation(sources.Unlabelled(self.source))) as batches:
      placed = with_places(batches, context.reader.mesh, self.places)
      results = ((step(params, *inputs), here) for *inputs, here in placed)
      for (sums, few), here in one_behind(results):
        add(totals, sums)
        if here:
          shown.append({column: x[:here] for column, x in jax.device_get(few).items()})
    check_finite(totals["not_finite"], totals["images"], "the predictions")
    columns = [np.concatenate([x[column] for x in shown]) for column in COLUMNS]
    picture = pictures.picture_table(*columns)
    metrics = metrics_of(totals, targets.TARGETS[target])
    dataset = datasets.in_words(self.settings)
    return Result(metrics, pictures={"patches": picture}, dataset=dataset)


def with_places(
  batches, mesh: "jax.sharding.Mesh", places: Sequence[int]
) -> Iterator[tuple[dict, "jax.Array", "jax.Array", int]]:
  """Yields each batch, the index of its first image in the set, its rows to show, their number."""
  first = 0
  for batch in batches:
    size = len(batch["mask"])
    here = [place - first for place in places if first <= place < first + size]
    rows = np.int32(here + [0] * (SHOWN - len(here)))
    yield batch, meshes.replicate(mesh, np.int32(first)), meshes.replicate(mesh, rows), len(here)
    first += size


def check_layer(params, model, target: str):
  """Checks that the parameters hold a prediction layer for this target.

  Raises:
    NothingCounts: they do not.
  """
  wanted = targets.TARGETS[target].outputs(model.stride())
  layers = params.get(objective.OBJECTIVE_PARAMS)
  if layers is None or layers["prediction"]["bias"].shape != (wanted,):
    raise NothingCounts(
      f"these weights hold no layer that predicts {target}; evaluate a checkpoint of masked patch "
      "prediction with its own config.objective.target."
    )


def make_step(model, rate: float, target: str):
  """The function (params, batch, first, rows) -> sums over a batch, and its `rows` as pictures.

  `first` is the index of the batch's first image in the set. The corruption of an image depends on
  its index only, so it is the same for every batch size.
  """
  masked = masked_patches.MaskedPatches(model, rate, targets.TARGETS[target])

  def step(params, batch, first, rows):
    images = batch["image"]
    mask = batch["mask"]
    chosen = masked.corruption(jax.random.key(0), images, first)
    targets = masked.targets(images, chosen)
    predictions = masked.predict(params, images, chosen, train=False)
    of_batch = masked.sums(predictions, targets, chosen.kinds, mask)
    wrong = ~jnp.isfinite(predictions).all(axis=tuple(range(1, predictions.ndim)))
    sums = dict(
      loss=of_batch.loss,
      count=of_batch.count,
      images=jnp.sum(mask),
      not_finite=jnp.sum(wrong * mask),
    )
    for name, (total, count) in of_batch.metrics.items():
      sums |= {f"{name}/sum": total, f"{name}/count": count}
    statistics = masked.target.statistics(targets, mask)
    sums |= {f"statistics/{name}": value for name, value in statistics.items()}
    few = jax.tree.map(lambda x: x[rows], (images, chosen, predictions))
    return sums, examples(masked, *few)

  return step


def examples(
  masked: "masked_patches.MaskedPatches", images, chosen, predictions
) -> dict[str, "jax.Array"]:
  """Images (B, S, S, 3) uint8: the originals, corrupted, and with predictions filled in."""
  side = masked.model.stride()
  patches = targets.in_patches(images, side)
  flat = patches.reshape(*patches.shape[:2], -1)
  predicted = masked.target.pictures(predictions, side)
  filled = corruption.filled(flat, chosen.patches, predicted.reshape(*predicted.shape[:2], -1))
  corrupted = corruption.corrupt(flat, chosen, jnp.full(flat.shape[-1], GREY))

  def joined(x):
    return targets.joined(x.reshape(patches.shape), images.shape[1:3])

  return dict(original=images, corrupted=joined(corrupted), predicted=joined(filled))


def measures(target: "targets.Target") -> list[str]:
  """The measure of a target over all corrupted patches, and over each kind of corruption."""
  return [target.measure, *(f"{target.measure}_{kind}" for kind in corruption.KINDS)]


def metrics_of(totals: dict, target: "targets.Target") -> dict[str, float]:
  """The metrics from sums over all images."""
  statistics = {
    name.removeprefix("statistics/"): x for name, x in totals.items() if "statistics/" in name
  }
  with jax.transfer_guard("allow"):  # of a few numbers, once
    constant = target.constant_loss(statistics)
  metrics = {"loss": totals["loss"] / totals["count"], "constant_loss": constant}
  for name in measures(target):
    if totals[f"{name}/count"]:
      metrics[name] = totals[f"{name}/sum"] / totals[f"{name}/count"]
  return {PREFIX + name: float(value) for name, value in metrics.items()}
