"""Everything that can be added to vit_jax, by name: one line for each thing.

A line leads to the file that holds the thing, its settings, their checks and its words:
"package.module:NAME", where NAME is a class of settings (augmentations, evaluations, objectives,
optimizers, added settings), another class (sources, callbacks, training views, parametrizations),
an instance (families, formats of weights and of programs, model types, names of arrays, storages)
or a function (names of models). The file is imported when the thing is asked for, so that a program
loads only what it uses, and a name can be checked without loading anything.
"""

import importlib
from collections.abc import Iterator, MutableMapping


class Registry(MutableMapping):
  """The things of one sort by name; `registry[name]` imports the thing and returns it."""

  def __init__(self, lines: dict[str, str]):
    """`lines` maps each name to "package.module:NAME"."""
    self._lines = dict(lines)
    self._modules = {}

  def __getitem__(self, name: str) -> object:
    module, _, attribute = self._lines[name].partition(":")
    if module not in self._modules:  # to import it again takes 20 µs, at each read of a file
      self._modules[module] = importlib.import_module(module)
    return getattr(self._modules[module], attribute)

  def __setitem__(self, name: str, line: str):
    self._lines[name] = line

  def __delitem__(self, name: str):
    del self._lines[name]

  def __contains__(self, name: object) -> bool:
    return name in self._lines  # without importing it

  def __iter__(self) -> Iterator[str]:
    return iter(self._lines)

  def __len__(self) -> int:
    return len(self._lines)

  def line(self, name: str) -> str:
    """The "package.module:NAME" of `name`; imports nothing."""
    return self._lines[name]


AUGMENTATIONS = Registry(
  {
    "rand_augment": "vit_jax.data.augmentation.rand_augment:RandAugment",
    "rand_augment_timm": "vit_jax.data.augmentation.rand_augment_timm:RandAugmentTimm",
    "three_augment": "vit_jax.data.augmentation.three_augment:ThreeAugment",
    "color_jitter": "vit_jax.data.augmentation.color_jitter:ColorJitter",
    "random_erasing": "vit_jax.data.augmentation.random_erasing:RandomErasing",
  }
)

EVALUATIONS = Registry(
  {
    "classification": "vit_jax.evaluation.classification:Classification",
    "few_shot": "vit_jax.evaluation.few_shot:FewShot",
    "nearest_neighbours": "vit_jax.evaluation.nearest_neighbours:Nearest",
    "reconstruction": "vit_jax.extras.masked_patches.reconstruction:Reconstruction",
  }
)

OBJECTIVES = Registry(
  {
    "classification": "vit_jax.learning.classification:Settings",
    "distillation": "vit_jax.extras.distillation.objective:Settings",
    "masked_patches": "vit_jax.extras.masked_patches.objective:Masked",
    "mae": "vit_jax.extras.mae:Settings",
    "dino": "vit_jax.extras.dino.objective:Settings",
  }
)

# Objectives around that of a run, whose parameters change those of the model. Each has the name of
# its setting, and of its subtree of the parameters.
PARAMETRIZATIONS = Registry({"lora": "vit_jax.extras.lora:LoRA"})

OPTIMIZERS = Registry(
  {
    "adam": "vit_jax.learning.optimizers.adam:Adam",
    "lamb": "vit_jax.learning.optimizers.lamb:LAMB",
    "lion": "vit_jax.learning.optimizers.lion:Lion",
    "muon": "vit_jax.learning.optimizers.muon:Muon",
    "schedule_free": "vit_jax.learning.optimizers.schedule_free:ScheduleFree",
    "sgd": "vit_jax.learning.optimizers.sgd:SGD",
  }
)

WEIGHT_FORMATS = Registry(  # a path is offered to them in this order
  {
    "timm": "vit_jax.extras.formats.timm_hub:TIMM",
    "huggingface": "vit_jax.extras.formats.huggingface:HUGGING_FACE",
    "open_clip": "vit_jax.extras.formats.open_clip:OPEN_CLIP",
    "npz": "vit_jax.weights.npz:NPZ",
    "msgpack": "vit_jax.weights.msgpack:MSGPACK",
    "safetensors": "vit_jax.weights.safetensors:SAFETENSORS",
  }
)

# Models in the folders of Transformers, by "model_type" in config.json. The first one that has a
# place for a model is written.
MODEL_TYPES = Registry(
  {
    "vit": "vit_jax.extras.formats.model_types.vit:VIT",
    "vit_mae": "vit_jax.extras.formats.model_types.vit:MAE",
    "vit_msn": "vit_jax.extras.formats.model_types.vit:MSN",
    "ijepa": "vit_jax.extras.formats.model_types.ijepa:IJEPA",
    "dinov2": "vit_jax.extras.formats.model_types.dinov2:DINOV2",
    "dinov2_with_registers": "vit_jax.extras.formats.model_types.dinov2:DINOV2_WITH_REGISTERS",
    "deit": "vit_jax.extras.formats.model_types.deit:DEIT",
    "beit": "vit_jax.extras.formats.model_types.beit:BEIT",
    "dinov3_vit": "vit_jax.extras.formats.model_types.dinov3:DINOV3",
    "clip_vision_model": "vit_jax.extras.formats.model_types.clip:CLIP_VISION",
    "clip": "vit_jax.extras.formats.model_types.clip:CLIP",
    "siglip_vision_model": "vit_jax.extras.formats.model_types.siglip:SIGLIP_VISION",
    "siglip": "vit_jax.extras.formats.model_types.siglip:SIGLIP",
  }
)

PROGRAM_FORMATS = Registry(  # a model as a program; only vit-jax export asks for them
  {
    "stablehlo": "vit_jax.extras.programs.stablehlo:STABLEHLO",
    "onnx": "vit_jax.extras.programs.onnx:ONNX",
  }
)

# The prefixes of config.data.*.source, before the colon. A path without a prefix is offered to them
# in this order.
SOURCES = Registry(
  {
    "tfds": "vit_jax.data.sources.tfds:Tfds",
    "csv": "vit_jax.extras.sources.csv_file:Csv",
    "parquet": "vit_jax.extras.sources.parquet:Parquet",
    "wds": "vit_jax.extras.sources.webdataset:WebDataset",
    "hf": "vit_jax.extras.sources.hugging_face:HuggingFace",
    "folder": "vit_jax.data.sources.folder:Folder",
    "objectnet": "vit_jax.extras.sources.objectnet:ObjectNet",
    "vtab": "vit_jax.extras.sources.vtab_tasks:Vtab",
    "digits": "vit_jax.data.sources.digits:Digits",
    "synthetic": "vit_jax.data.sources.synthetic:Synthetic",
  }
)

STORAGES = Registry(
  {
    "file": "vit_jax.storage.local:LOCAL",
    "gs": "vit_jax.extras.buckets.services:GOOGLE",
    "s3": "vit_jax.extras.buckets.services:AMAZON",
  }
)

# Callbacks, which observe training or replace the update, in the order in which they are called.
CALLBACKS = Registry(
  {
    "messages": "vit_jax.extras.report.messages:Messages",
    # Before the report: ends come in reverse order, and these log what it writes.
    "wandb": "vit_jax.extras.loggers.wandb:WandB",
    "mlflow": "vit_jax.extras.loggers.mlflow:MLflow",
    "trackio": "vit_jax.extras.loggers.trackio:Trackio",
    "report": "vit_jax.extras.report.report:Report",
    "provenance": "vit_jax.extras.report.provenance:Provenance",
    "verification": "vit_jax.extras.verification.verification:Verification",
  }
)

ARRAY_NAMES = Registry(  # other libraries' names in safetensors files; the first is the one written
  {
    "timm": "vit_jax.extras.formats.timm:NAMES",
    "open_clip": "vit_jax.extras.formats.open_clip:NAMES",
  }
)

TRAINING_VIEWS = Registry(  # layers between the training images and their readers
  {
    "prepared_cache": "vit_jax.extras.prepared_cache:PreparedCache",
  }
)

SETTINGS = Registry(  # settings that extras add; the group's name is before the dot
  {
    "data.prepared_cache": "vit_jax.extras.settings:PreparedCache",
    "run.verification": "vit_jax.extras.settings:Verification",
    "run.report": "vit_jax.extras.settings:Report",
    "run.lora": "vit_jax.extras.settings:OfLoRA",
    "run.wandb": "vit_jax.extras.settings:WandB",
    "run.mlflow": "vit_jax.extras.settings:MLflow",
    "run.trackio": "vit_jax.extras.settings:Trackio",
  }
)

MODEL_NAMES = Registry(  # names of models in other libraries
  {
    "vit": "vit_jax.extras.formats.vit_names:translate",
    "resnet": "vit_jax.extras.formats.resnet_names:translate",
  }
)

FAMILIES = Registry(  # families of models; parameters are offered to the last one first
  {
    "vit": "vit_jax.models.vit:FAMILY",
    "resnet": "vit_jax.models.resnet:FAMILY",
  }
)
