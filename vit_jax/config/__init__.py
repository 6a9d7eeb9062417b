"""Every setting of a run: its meaning, unit, default and bounds; imports no JAX.

A recipe (configs/NAME.py) builds a `Config`. The command line sees it as an
`ml_collections.ConfigDict`, so that every key can be overridden. `from_dict` then turns the result
back into frozen dataclasses. The settings of a `kind` stand with the kind:
optimizers, objectives and evaluations define their own.
"""

from vit_jax.config.data import RESAMPLING, Augmentation, Data, Dataset, View, Weighted
from vit_jax.config.fields import (
  AUTO,
  MAX_BATCH,
  MAX_NUMBER,
  MAX_PIXELS,
  MAX_SIDE,
  MAX_STEPS,
  Duration,
  Size,
  as_size,
  covers,
  in_pixels,
  scaled,
  sides,
)
from vit_jax.config.learning import (
  DECAY_RULES,
  Loss,
  NonFinite,
  ObjectiveSettings,
  Optimizer,
  Schedule,
)
from vit_jax.config.model import Model
from vit_jax.config.parsing import from_dict, to_config_dict, to_dict
from vit_jax.config.run import (
  POSITION_RESIZING,
  Checkpoint,
  Config,
  EarlyStopping,
  Mesh,
  Profile,
)
from vit_jax.config.suggestions import similar
from vit_jax.process.errors import ConfigError, RunError, Stopped, StorageError

__all__ = [
  "AUTO",
  "DECAY_RULES",
  "MAX_BATCH",
  "MAX_NUMBER",
  "MAX_PIXELS",
  "MAX_SIDE",
  "MAX_STEPS",
  "POSITION_RESIZING",
  "RESAMPLING",
  "Augmentation",
  "Checkpoint",
  "Config",
  "ConfigError",
  "Data",
  "Dataset",
  "Duration",
  "EarlyStopping",
  "Loss",
  "Mesh",
  "Model",
  "NonFinite",
  "ObjectiveSettings",
  "Optimizer",
  "Profile",
  "RunError",
  "Schedule",
  "Size",
  "Stopped",
  "StorageError",
  "View",
  "Weighted",
  "as_size",
  "covers",
  "from_dict",
  "in_pixels",
  "scaled",
  "sides",
  "similar",
  "to_config_dict",
  "to_dict",
]
