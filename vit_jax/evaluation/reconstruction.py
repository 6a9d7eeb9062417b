"""How well masked patch prediction predicts held-out images, with pictures (Section 4.6)."""

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from vit_jax import config as cfg
from vit_jax.config import Config, ConfigError
from vit_jax.data import by_label, datasets, leakage
from vit_jax.data.datasets import NamedDataset, Opener
from vit_jax.data.sources import Source, Unlabelled
from vit_jax.devices import mesh as meshes
from vit_jax.evaluation.adding import add, one_behind
from vit_jax.evaluation.spec import (
  EvalContext,
  EvaluationSpec,
  Evaluator,
  Metric,
  NothingCounts,
  Result,
)
from vit_jax.learning import corruption, patch_targets
from vit_jax.learning.corruption import KINDS
from vit_jax.learning.masked_patches import Masked, MaskedPatches
from vit_jax.learning.objective import OBJECTIVE_PARAMS
from vit_jax.learning.patch_targets import TARGETS
from vit_jax.plots import tiles

SHOWN = 8  # images in the picture
GREY = 128  # of masked patches
PREFIX = "patch_"  # of the names of all metrics
COLUMNS = ("original", "corrupted", "predicted")


@dataclasses.dataclass(frozen=True)
class Settings:
  """config.reconstruct.NAME, and config.objective."""

  dataset: cfg.Dataset
  masked: Masked


@dataclasses.dataclass(frozen=True)
class HeldOut(Evaluator):
  """Held-out images, each corrupted in the same way at every evaluation.

  Attributes:
    settings: of the evaluation.
    source: the images; their labels, if they have any, only choose those of the picture.
  """

  settings: Settings
  source: Source

  @functools.cached_property
  def places(self) -> list[int]:
    """Places of the images of the picture in the source; reads labels."""
    return by_label.of_source(self.source, SHOWN)

  def score(self, context: EvalContext, params) -> Result:
    """Loss and measure over all images, and a picture of a few, of all classes."""
    masked = self.settings.masked
    check_layer(params, context.model, masked.target)
    step = context.compiled(make_step, masked.rate, masked.target)
    totals, shown = {}, []
    with context.batches(context.reader.squares(Unlabelled(self.source))) as batches:
      placed = with_places(batches, context.reader.mesh, self.places)
      for (sums, few), here in one_behind((step(params, *each), here) for *each, here in placed):
        add(totals, sums)
        if here:
          shown.append({column: x[:here] for column, x in jax.device_get(few).items()})
    if not totals["count"]:
      raise NothingCounts("no image counts")
    picture = tiles.table(*(np.concatenate([x[column] for x in shown]) for column in COLUMNS))
    found = metrics(totals, TARGETS[masked.target])
    dataset = datasets.in_words(self.settings.dataset)
    return Result(found, pictures={"patches": picture}, dataset=dataset)


def with_places(
  batches, mesh: jax.sharding.Mesh, places: Sequence[int]
) -> Iterator[tuple[dict, jax.Array, jax.Array, int]]:
  """Each batch, the place of its first image in the set, its rows to show, and their number."""
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
  wanted = TARGETS[target].outputs(model.stride())
  own = params.get(OBJECTIVE_PARAMS)
  if own is None or own["prediction"]["bias"].shape != (wanted,):
    raise NothingCounts(
      f"these weights hold no layer that predicts {target}; evaluate a checkpoint of masked patch "
      "prediction with its own config.objective.target."
    )


def make_step(model, rate: float, target: str):
  """The function (params, batch, first, rows) -> sums over a batch, and its `rows` as pictures.

  `first` is the place of the batch's first image in the set: the corruption of an image depends on
  its place alone, so it is the same for every size of batch.
  """
  objective = MaskedPatches(model, rate, TARGETS[target])

  def step(params, batch, first, rows):
    images, mask = batch["image"], batch["mask"]
    chosen = objective.corruption(jax.random.key(0), images, first)
    targets = objective.targets(images, chosen)
    predictions = objective.predict(params, images, chosen, train=False)
    found = objective.sums(predictions, targets, chosen.kinds, mask)
    sums = dict(loss=found.loss, count=found.count)
    for name, (total, count) in found.metrics.items():
      sums |= {f"{name}/sum": total, f"{name}/count": count}
    statistics = objective.target.statistics(targets, mask)
    sums |= {f"statistics/{name}": value for name, value in statistics.items()}
    few = jax.tree.map(lambda x: x[rows], (images, chosen, predictions))
    return sums, examples(objective, *few)

  return step


def examples(objective: MaskedPatches, images, chosen, predictions) -> dict[str, jax.Array]:
  """Images (B, S, S, 3) uint8 as they are, corrupted, and with predictions in corrupted places."""
  side = objective.model.stride()
  patches = patch_targets.in_patches(images, side)
  flat = patches.reshape(*patches.shape[:2], -1)
  predicted = objective.target.pictures(predictions, side)
  filled = corruption.filled(flat, chosen.patches, predicted.reshape(*predicted.shape[:2], -1))
  corrupted = corruption.corrupt(flat, chosen, jnp.full(flat.shape[-1], GREY))
  whole = lambda x: patch_targets.joined(x.reshape(patches.shape), images.shape[1:3])
  return dict(original=images, corrupted=whole(corrupted), predicted=whole(filled))


def metrics(totals: dict, target: patch_targets.Target) -> dict[str, float]:
  """The metrics from sums over all images."""
  statistics = {
    name.removeprefix("statistics/"): x for name, x in totals.items() if "statistics/" in name
  }
  with jax.transfer_guard("allow"):  # of a few numbers, once
    constant = target.constant_loss(statistics)
  found = {"loss": totals["loss"] / totals["count"], "constant_loss": constant}
  for kind in ("", *(f"_{name}" for name in KINDS)):
    name = target.measure + kind
    if totals[f"{name}/count"]:
      found[name] = totals[f"{name}/sum"] / totals[f"{name}/count"]
  return {PREFIX + name: float(value) for name, value in found.items()}


def settings_of(config: Config) -> dict[str, Settings]:
  """The sets of config.reconstruct that have a source.

  Raises:
    ConfigError: the run does not predict patches.
  """
  found = {name: one for name, one in config.reconstruct.items() if one.source}
  if found and not isinstance(config.objective, Masked):
    raise ConfigError(
      f"config.reconstruct.{next(iter(found))} predicts corrupted patches, which "
      f"config.objective.kind={config.objective.kind!r} does not learn; leave its source empty, or "
      "use --config.objective.kind=masked_patches."
    )
  return {name: Settings(one, config.objective) for name, one in found.items()}


def open_all(
  settings: Mapping[str, Settings],
  opener: Opener,
  trained: Sequence[NamedDataset],
  classes: Sequence[str] | None,
) -> dict[str, HeldOut]:
  """Opens each set; arguments as in `EvaluationSpec.open`.

  Raises:
    ConfigError: the set has images of the training data.
    SourceError: data is missing.
  """
  del classes
  result = {}
  for name, one in settings.items():
    scored = opener.open(f"config.reconstruct.{name}", one.dataset)
    leakage.check(trained, scored, allow=opener.allow_overlap)
    result[name] = HeldOut(one, scored.source)
  return result


def names(settings: Settings, classes: int) -> list[str]:
  """The loss, the best constant's, and the measure of the target; the head does not matter."""
  del classes
  measure = TARGETS[settings.masked.target].measure
  return [PREFIX + name for name in ("loss", "constant_loss", measure)]


def in_words(metric: str, metrics: Mapping[str, float]) -> str:
  """The loss beside that of the best constant."""
  return f"patch loss {metrics[metric]:.4f} (constant {metrics[PREFIX + 'constant_loss']:.4f})"


SPEC = EvaluationSpec(
  group="config.reconstruct",
  settings=settings_of,
  open=open_all,
  metrics=(
    Metric("patch_loss", curve="loss", smaller_is_better=True, headline=True),
    Metric("patch_constant_loss", curve="", smaller_is_better=True),
    Metric(r"patch_accuracy\w*"),
    Metric(r"patch_squared_error\w*", curve="", smaller_is_better=True),
  ),
  names=names,
  in_words=in_words,
)
