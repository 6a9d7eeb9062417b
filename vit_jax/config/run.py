"""Every setting of a run, with its meaning, unit, default and bounds."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from vit_jax import registry
from vit_jax.config.data import Data
from vit_jax.config.fields import (
  AUTO,
  MAX_BATCH,
  MAX_STEPS,
  Duration,
  Rule,
  added,
  group,
  group_of_kind,
  length,
  named_of_kind,
  of_added,
  setting,
)
from vit_jax.config.learning import Loss, NonFinite, ObjectiveSettings, Optimizer, Schedule
from vit_jax.config.model import Model
from vit_jax.config.scales import batch_of, in_words, length_of, scale_of
from vit_jax.registry import WEIGHT_FORMATS

POSITION_RESIZING = ("bilinear_aligned", "bicubic", "bicubic_antialiased", "bicubic_offset")
HEAD = (("objective.trains_head",),)
WEIGHTS = (("init_from",),)


def groups_of(fsdp, model, devices) -> tuple[int, str]:
  """As many data-parallel groups as the devices allow."""
  return max(1, devices() // (fsdp * model)), ""


SCORED_AT_ONCE = 256  # images of an evaluation, where no run tells the size of a batch


def size_of_batch(init_from, scored_at_once, images) -> tuple[int, str]:
  """A power of two, at most a quarter of the training images; for an evaluation, its own batch."""
  if known := scored_at_once():
    return known, ""
  most = 512 if init_from else scale_of(images()).batch_size
  return batch_of(images(), most), in_words(images())


def length_of_run(init_from, images) -> tuple[Duration, str]:
  """The steps of the BiT-HyperRule for fine-tuning; from scratch, fewer epochs for more images."""
  if init_from:
    length = Duration(steps=length_of(images()).total)
  else:
    length = Duration(epochs=scale_of(images()).epochs)
  return length, in_words(images())


def steps_between_lines(length, batch_size, images) -> tuple[Duration, str]:
  """A hundredth of the run, at most 50 steps."""
  steps = length.exact_steps(batch_size=batch_size, epoch_examples=images)
  return Duration(steps=max(1, min(50, round(steps / 100)))), ""


def tenth(length) -> tuple[Duration, str]:
  """A tenth of the run."""
  return length.every_part(10), ""


def resized_positions(init_from, of_objective, card) -> tuple[str, str]:
  """The rule of the weights; that of the objective, if theirs is that of the published code."""
  known = card()
  if known and known.position_resizing != POSITION_RESIZING[0]:
    return known.position_resizing, init_from
  return of_objective, ""


TENTH = Rule(("duration",), "a tenth of the run", tenth)


@dataclasses.dataclass(frozen=True)
class Mesh:
  """A mesh of data x fsdp x model devices.

  The batch is split over data and fsdp, parameters over fsdp, and attention heads and MLP channels,
  with their parameters, over model.
  """

  data: int = setting(
    AUTO,
    "data-parallel groups",
    auto=Rule(
      ("mesh.fsdp", "mesh.model", "facts.devices"),
      "the number of devices, fsdp and model",
      groups_of,
      stays="never",
    ),
    low=1,
    high=2**20,
  )
  fsdp: int = setting(
    1,
    "devices, or groups of `model`, that share one copy of parameters and optimizer",
    low=1,
    high=2**20,
  )
  model: int = setting(
    1,
    "devices of a process that compute the same images, each with a part of the attention heads "
    "and MLP channels; must divide both; ViTs, and models whose sharding names it",
    low=1,
    high=2**10,
  )


@dataclasses.dataclass(frozen=True)
class Checkpoint:
  """When to save checkpoints, and which to keep: the newest, and one for each `keep_every`.

  `keep_every` is rounded to the nearest multiple of `every`.
  """

  every: Duration = length(auto=TENTH)
  keep_last: int = setting(2, "number of newest checkpoints to keep", low=1, high=10**6)
  keep_every: Duration = length(used_if=(("checkpoint.every",),))
  retry_seconds: float = setting(
    600.0,
    "how long failed writes of checkpoints and metrics are retried while the run continues; then "
    "it ends",
    low=0.0,
    high=1e6,
  )


@dataclasses.dataclass(frozen=True)
class EarlyStopping:
  """Keeps the best checkpoint by one metric, in addition to those of `config.checkpoint`."""

  metric: str = setting(
    "",
    "such as val/top1; smaller is better for losses and squared errors, otherwise larger; empty: "
    "off",
  )
  patience: int = setting(
    0,
    "evaluations in a row without improvement after which the run ends; 0: never",
    low=0,
    high=10**9,
    used_if=(("early_stopping.metric",), ("evaluate_every",)),
  )


@dataclasses.dataclass(frozen=True)
class Profile:
  """A jax.profiler trace of a window of steps, written to WORKDIR/profile."""

  first_step: int = setting(
    10,
    "first step in the trace, counted from each start of the run",
    low=1,
    high=MAX_STEPS,
    used_if=(("profile.steps",),),
  )
  steps: int = setting(0, "steps in the trace; 0: no trace", low=0, high=10**4)


# The settings that decide the memory of a step. The devices do not count: a run that goes on with
# other devices keeps its `accumulation`, if they can split its parts (training/start.py).
OF_MEMORY = (
  *("batch_size", "data.image_size", "optimizer.kind"),
  *of_added("run", "of_memory"),
  *("model.family", "model.patch", "model.depth", "model.width", "model.mlp_dim", "model.heads"),
  *("model.stem_width", "model.stages", "model.num_classes", "model.compute_dtype", "model.remat"),
  *("mesh.fsdp", "mesh.model", "asked.model.attention"),
)


@dataclasses.dataclass(frozen=True)
class Config(*added("run")):
  """A whole run."""

  seed: int = setting(0, "root of all randomness", low=0, high=2**31 - 1)
  batch_size: int = setting(
    AUTO,
    "images per update over all hosts",
    auto=Rule(
      ("init_from", "facts.scored_at_once", "facts.images"),
      "the number of training images; of an evaluation alone, the run of its weights, or "
      f"{SCORED_AT_ONCE}",
      size_of_batch,
    ),
    low=1,
    high=MAX_BATCH,
  )
  accumulation: int = setting(
    AUTO,
    "parts of the batch that are computed one after another",
    auto=Rule(
      (*OF_MEMORY, "facts.parts"),
      "the fewest that fit into the devices' memory, by the compiler",
      lambda *values: values[-1](),
    ),
    low=1,
    high=MAX_BATCH,
  )
  duration: Duration = length(
    auto=Rule(("init_from", "facts.images"), "the number of training images", length_of_run)
  )
  log_every: Duration = length(
    auto=Rule(
      ("duration", "batch_size", "facts.images"),
      "a hundredth of the run, at most 50 steps",
      steps_between_lines,
    )
  )
  evaluate_every: Duration = length(auto=TENTH)
  init_from: str = setting(
    "",
    "weights to start from, or to evaluate if the workdir has no checkpoint: a workdir, one of its "
    f"checkpoints, or weights in a format of {', '.join(WEIGHT_FORMATS)}",
  )
  new_head: bool = setting(
    False,
    "start with a new head even if the weights have one that fits",
    used_if=(*HEAD, *WEIGHTS),
  )
  new_positions: bool = setting(
    False,
    "start with new position embeddings instead of resizing those of the weights (a comparison "
    "with Section 3.2)",
    used_if=WEIGHTS,
  )
  position_resizing: str = setting(
    AUTO,
    "how position embeddings are resized to another resolution: as the published code "
    "(`bilinear_aligned`), Transformers (`bicubic`), timm (`bicubic_antialiased`) or DINOv2's own "
    "code (`bicubic_offset`)",
    auto=Rule(
      ("init_from", "objective.position_resizing", "facts.card"),
      "the weights; from scratch bilinear_aligned, and bicubic_offset for DINO",
      resized_positions,
      stays="always",
    ),
    choices=POSITION_RESIZING,
  )
  keep_representation: bool = setting(
    False,
    "keep the representation layer of the weights under a new head (the comparison of Appendix "
    "B.1.1)",
    used_if=(*WEIGHTS, ("model.representation_layer", True)),
  )
  class_names: str = setting(
    "",
    "class names of the head in init_from (with --mode=evaluate, of the evaluated head), in the "
    "order of its outputs: a text file with one name per line, or 'data' if the data has the same "
    "classes in this order; empty: those stored with the weights",
    used_if=(*HEAD, *WEIGHTS, ("new_head", False)),
  )
  evaluate_step: int = setting(
    0, "with --mode=evaluate: step of the checkpoint; 0: the newest", low=0, high=MAX_STEPS
  )
  model: Model = group(Model)
  objective: ObjectiveSettings = group_of_kind(registry.OBJECTIVES, default="classification")
  loss: Loss = group(Loss, used_if=HEAD)
  optimizer: Optimizer = group_of_kind(registry.OPTIMIZERS, default="adam")
  schedule: Schedule = group(Schedule)
  data: Data = group(Data)
  evaluate: Mapping[str, Any] = named_of_kind(
    registry.EVALUATIONS,
    "evaluations by name, made at every `evaluate_every`; one without a source is left out",
    default="classification",
  )
  mesh: Mesh = group(Mesh)
  checkpoint: Checkpoint = group(Checkpoint)
  early_stopping: EarlyStopping = group(EarlyStopping)
  stall_seconds: float = setting(
    1800.0,
    "the run ends, and prints the stack of every thread, after this many seconds without a step, a "
    "batch of an evaluation or a save; compilation counts too; 0: no limit",
    low=0.0,
    high=1e7,
  )
  non_finite: NonFinite = group(NonFinite)
  profile: Profile = group(Profile)
  origins: tuple = setting(
    (),
    "pairs (setting, where its value comes from), which recipes give and a run shows",
  )
  derived: tuple = setting((), "settings whose values follow from rules, as a run records them")
  plugins: str = setting(
    "",
    "modules of your own, separated by commas, that add to vit_jax.registry; only on the command "
    "line, or imported by a program (docs/extending.md)",
  )

  @property
  def parts(self) -> int:
    """The number of parts that a batch is computed in; 1 while `accumulation` is AUTO."""
    if self.accumulation == AUTO:
      return 1
    return self.accumulation
