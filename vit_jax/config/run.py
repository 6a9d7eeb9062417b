"""Every setting of a run, with its meaning, unit, default and bounds."""

import dataclasses
from collections.abc import Mapping

from vit_jax.config.data import Data, Dataset, FewShot, Nearest
from vit_jax.config.duration import Duration
from vit_jax.config.fields import MOST_BATCH, MOST_STEPS, group, named, setting
from vit_jax.config.learning import Loss, NonFinite, Optimizer, Schedule
from vit_jax.config.model import Model


@dataclasses.dataclass(frozen=True)
class Mesh:
  """Devices: data x fsdp. The batch is split over both, parameters over fsdp."""

  data: int = setting(0, "data-parallel groups; 0: as many as the devices allow", low=0, high=2**20)
  fsdp: int = setting(
    1, "devices that share one copy of parameters and optimizer", low=1, high=2**20
  )


@dataclasses.dataclass(frozen=True)
class Checkpoint:
  """When to save, and what to keep: the newest, and for ever one each `keep_every`.

  `keep_every` is taken to the nearest multiple of `every`.
  """

  every: Duration = group(Duration, steps=1000)
  keep_last: int = setting(2, "newest checkpoints kept", low=1, high=10**6)
  keep_every: Duration = group(Duration)
  on_failure: str = setting(
    "stop",
    "when a checkpoint (or metrics) cannot be saved, as on a full disk: end the run, or go on and "
    "try again when the next is due; at the end all must be saved",
    choices=("stop", "go_on"),
  )


@dataclasses.dataclass(frozen=True)
class EarlyStopping:
  """The best checkpoint by one figure of the evaluations, kept beside what `Checkpoint` keeps."""

  metric: str = setting(
    "",
    "the figure, such as val/top1; a loss is better when it is smaller, anything else when it is "
    "larger; empty: off",
  )
  patience: int = setting(
    0,
    "the run ends after so many evaluations in a row that were not better; 0: never",
    low=0,
    high=10**9,
  )


@dataclasses.dataclass(frozen=True)
class Profile:
  """A jax.profiler trace of a window of steps, written to WORKDIR/profile."""

  first_step: int = setting(10, "first step in the trace", low=1, high=MOST_STEPS)
  steps: int = setting(0, "steps in the trace; 0: no trace", low=0, high=10**4)


@dataclasses.dataclass(frozen=True)
class Config:
  """A whole run."""

  seed: int = setting(0, "root of all randomness", low=0, high=2**31 - 1)
  batch_size: int = setting(4096, "images per update over all hosts", low=1, high=MOST_BATCH)
  accumulation: int = setting(
    1, "parts that the batch is worked through in, one after another", low=1, high=MOST_BATCH
  )
  duration: Duration = group(Duration)
  log_every: Duration = group(Duration, steps=50)
  evaluate_every: Duration = group(Duration, epochs=1.0)
  init_from: str = setting(
    "",
    "parameters to start from, or to evaluate where the workdir has no checkpoint: .npz, .msgpack, "
    ".safetensors, a folder of Hugging Face's, or the workdir of another run",
  )
  new_head: bool = setting(
    False, "with init_from: the head starts anew even where the weights have one that fits"
  )
  class_names: str = setting(
    "",
    "the names of the head's outputs in init_from (with --mode=evaluate: in what is evaluated), in "
    "their order: a text file with one a line, or 'data', where they are the data's in its order; "
    "empty: those that go with the weights",
  )
  evaluate_step: int = setting(
    0, "with --mode=evaluate: the checkpoint's step; 0: the newest", low=0, high=MOST_STEPS
  )
  evaluate_average: bool = setting(
    True, "with --mode=evaluate: the moving average of the parameters, where the checkpoint has one"
  )
  model: Model = group(Model)
  loss: Loss = group(Loss)
  optimizer: Optimizer = group(Optimizer)
  schedule: Schedule = group(Schedule)
  data: Data = group(Data)
  few_shot: Mapping[str, FewShot] = named("linear probes, evaluated with the sets of data.evaluate")
  nearest: Mapping[str, Nearest] = named("nearest neighbours, evaluated in the same way")
  mesh: Mesh = group(Mesh)
  checkpoint: Checkpoint = group(Checkpoint)
  early_stopping: EarlyStopping = group(EarlyStopping)
  stall_seconds: float = setting(
    1800.0,
    "the run ends, with the stack of every thread, when nothing has got further for so long: no "
    "step, no batch of an evaluation, no save; compiling counts too; 0: it waits for ever",
    low=0.0,
    high=1e7,
  )
  non_finite: NonFinite = group(NonFinite)
  profile: Profile = group(Profile)


# What settings are in runs of earlier releases that did not have them: all but one their defaults.
EARLIER = Config(data=Data(sampling="grain"))

# Groups whose names are the recipe's own, and what each name holds.
NAMED = {
  "config.data.evaluate": dataclasses.asdict(Dataset()),
  "config.few_shot": dataclasses.asdict(FewShot()),
  "config.nearest": dataclasses.asdict(Nearest()),
}
