"""Settings that extras add to the groups of the core (`registry.SETTINGS`)."""

import dataclasses
from typing import ClassVar

from vit_jax.config.fields import MAX_PIXELS, MAX_STEPS, Added, Switched, group, setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class PreparedCache(Added):
  """Of config.data."""

  of_host: ClassVar = ("cache",)
  switch: ClassVar = "cache"

  cache: str = setting(
    "",
    "folder that vit-jax cache has filled with the training images, reduced to cache_side: faster, "
    "but crops are taken from the reduced images; evaluation reads the originals",
  )
  cache_side: int = setting(
    256,
    "smaller side of the images in the cache, pixels; smaller images keep their size",
    low=1,
    high=MAX_PIXELS,
    used_if=(("data.cache",),),
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verification(Added):
  """Of the run."""

  of_memory: ClassVar = ("verify_every",)
  switch: ClassVar = "verify_every"

  verify_every: int = setting(
    0,
    "every so many steps, and at each start, compute a step twice and compare the bits, to find "
    "devices that compute wrongly; takes memory for a second state; 0: never",
    low=0,
    high=MAX_STEPS,
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report(Added):
  """Of the run."""

  without_steps: ClassVar = ("report",)

  report: bool = setting(
    True, "draw curves and confusion matrices, and write WORKDIR/report.html, at the run's end"
  )


@dataclasses.dataclass(frozen=True)
class LoRA(Switched):
  """LoRA: kernels of the weights in init_from are frozen, and low-rank changes of them trained.

  A kernel W computes as W + alpha / rank A B. A (inputs, rank) begins as a normal with variance
  1 / inputs, and B (rank, outputs) as zeros.

  Source: Hu et al., "LoRA: Low-rank adaptation of large language models", 2021, Section 4.1.
  """

  switch: ClassVar = "rank"

  rank: int = setting(0, "columns of A and rows of B; 0: no LoRA", low=1, high=2**16, off=0)
  alpha: float = setting(
    16.0,
    "factor on the changes, divided by rank",
    low=1e-6,
    high=1e6,
    used_if=(("lora.rank",),),
  )
  kernels: str = setting(
    r".*/(query|key|value|out|Dense_\d)/kernel",
    "regex of the whole names of the kernels of blocks that change: query, key, value and out of "
    "attention, Dense_0 and Dense_1 of the MLP; with config.model.scan all blocks have one name",
    used_if=(("lora.rank",),),
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class OfLoRA(Added):
  """Of the run."""

  of_memory: ClassVar = ("lora",)
  of_start: ClassVar = ("lora",)
  switch: ClassVar = "lora"

  lora: LoRA = group(LoRA)


@dataclasses.dataclass(frozen=True, kw_only=True)
class WandB(Added):
  """Of the run."""

  switch: ClassVar = "wandb"

  wandb: str = setting("", "project of Weights & Biases to log to (docs/logging.md)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class MLflow(Added):
  """Of the run."""

  switch: ClassVar = "mlflow"

  mlflow: str = setting("", "experiment of MLflow to log to (docs/logging.md)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trackio(Added):
  """Of the run."""

  switch: ClassVar = "trackio"

  trackio: str = setting("", "project of Trackio to log to (docs/logging.md)")
