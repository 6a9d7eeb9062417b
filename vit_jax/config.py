"""Every setting of a run: its meaning, unit, default and check. The one place with defaults.

A recipe (configs/NAME.py) builds a `Config`; the command line sees it as an
`ml_collections.ConfigDict`, so that every key can be overridden; `from_dict` turns the
result once into frozen dataclasses again. Nothing here imports JAX.
"""

import dataclasses
import difflib
import math
import pathlib
import unicodedata
from collections.abc import Mapping
from typing import Any, get_args, get_origin

import ml_collections

from vit_jax import synonyms
from vit_jax.plain import shown


class ConfigError(ValueError):
  """A wrong setting or missing data; the message names the key, the value and what to do."""


class RunError(RuntimeError):
  """A run that cannot go on, for a reason outside its config; the message says what to do."""


class StorageError(RunError):
  """The run's folder cannot be written to; no use waiting for what is still being written."""


# What no machine or experiment wants more of; the rest of the bounds stand with their settings.
MOST_STEPS = 2**31 - 1  # as the optimizers count them
MOST_SIDE = 4096  # pixels, of what a model sees
MOST_PIXELS = 2 * MOST_SIDE  # of a side before something is cut out
MOST_BATCH = 2**20  # images
MOST_NUMBER = 1e38  # which float32 still holds
AUTO = "auto"  # as config.model.compute_dtype
MOST_TEXT = 4096  # characters, as in a path
MOST_ITEMS = 1000  # of a setting that holds several values


def setting(default, meaning, *, choices=(), low=None, high=None, off=None):
  """A dataclass field with its meaning and the values that it may take.

  Args:
    default: its value where none is given.
    meaning: what it is, with its unit.
    choices: all values, where they can be listed.
    low, high: bounds of a number, inclusive; every number has both.
    off: the one value outside of the bounds, which switches something off.
  """
  check = dict(meaning=meaning, choices=choices, low=low, high=high, off=off)
  return dataclasses.field(default=default, metadata=check)


def group(kind, **changes):
  """A field that holds a dataclass of further settings, with some defaults changed."""
  return dataclasses.field(default_factory=lambda: kind(**changes))


def named(meaning):
  """A field that holds any number of groups of settings by name."""
  return dataclasses.field(default_factory=dict, metadata=dict(meaning=meaning))


@dataclasses.dataclass(frozen=True)
class Duration:
  """A length of training in exactly one unit; all three 0 means never."""

  steps: int = setting(0, "optimizer updates", low=0, high=MOST_STEPS)
  epochs: float = setting(0.0, "passes over the training examples", low=0, high=1e9)
  examples: int = setting(0, "training examples", low=0, high=10**15)

  def given(self) -> dict[str, float]:
    """The units that are not 0."""
    return {unit: value for unit, value in dataclasses.asdict(self).items() if value}

  def in_steps(self, *, batch_size: int, epoch_examples: int) -> int:
    """The duration in steps, to the nearest; at least 1 unless it is 0."""
    examples = self.examples + self.epochs * epoch_examples
    steps = self.steps + round(examples / batch_size)
    return max(steps, 1) if self.given() else 0


@dataclasses.dataclass(frozen=True)
class Model:
  """The architecture. What is 0 or empty is taken from the name."""

  name: str = setting(
    "ViT-B/16",
    "a name of vit_jax.models.names(), or one of their kind; empty, for --mode=evaluate alone: the "
    "weights' own",
  )
  num_classes: int = setting(1000, "outputs of the head", low=1, high=10**7)
  depth: int = setting(0, "number of blocks", low=0, high=256)
  width: int = setting(0, "hidden size D; of a ResNet, channels of its root", low=0, high=2**15)
  mlp_dim: int = setting(0, "hidden size of the MLP", low=0, high=2**17)
  heads: int = setting(0, "attention heads", low=0, high=2**10)
  stages: tuple = setting((), "residual units in each stage of a ResNet or of a hybrid's")
  pool: str = setting("", "what the head sees", choices=("", "class_token", "gap", "map"))
  representation_layer: bool = setting(False, "dense + tanh of size D before the head")
  positions: str = setting(
    "1d", "kind of position embedding", choices=("1d", "2d", "relative", "none")
  )
  position_place: str = setting(
    "stem",
    "where 1d and 2d position embeddings are added",
    choices=("stem", "every_layer", "every_layer_shared"),
  )
  dropout: float = setting(0.0, "dropout rate", low=0.0, high=0.99)
  head_bias: float = setting(0.0, "initial value of the head's bias", low=-100.0, high=100.0)
  compute_dtype: str = setting(
    "float32",
    "type of activations; parameters stay float32; auto: float32 on a CPU, where bfloat16 is "
    "slower, and bfloat16 elsewhere; a run goes on with the type that it was begun with",
    choices=("float32", "bfloat16", AUTO),
  )
  scan: bool = setting(False, "blocks stacked under one scan: compiles in seconds, but runs slower")
  remat: str = setting(
    "none",
    "what the backward pass computes again: nothing, all but the outputs of dense layers, or all",
    choices=("none", "dots", "everything"),
  )
  attention: str = setting(
    "xla", "implementation of jax.nn.dot_product_attention", choices=("xla", "cudnn")
  )
  activation: str = setting(
    "gelu_tanh",
    "GELU of the MLPs: its tanh form, as in the published weights, or exact, as in many others",
    choices=("gelu_tanh", "gelu"),
  )
  norm_epsilon: float = setting(
    1e-6, "added to the variance in every LayerNorm", low=1e-15, high=1e-2
  )


@dataclasses.dataclass(frozen=True)
class Loss:
  """The training objective."""

  kind: str = setting(
    "softmax", "cross-entropy over classes, or per class", choices=("softmax", "sigmoid")
  )
  label_smoothing: float = setting(
    0.0, "share of the target spread over all classes", low=0.0, high=1.0
  )


DECAY_RULES = (
  (r".*/kernel", 1.0),
  (r".*/(bias|scale)", 0.0),
  (r"cls|.*/probe|.*/pos_embedding\w*", 0.0),
)


@dataclasses.dataclass(frozen=True)
class Optimizer:
  """Update rule; see vit_jax/optim.py for the formulas."""

  kind: str = setting(
    "adam", "Adam (with decoupled decay: AdamW) or SGD with momentum", choices=("adam", "sgd")
  )
  beta1: float = setting(0.9, "decay of Adam's first moment", low=0.0, high=0.999999)
  beta2: float = setting(0.999, "decay of Adam's second moment", low=0.0, high=0.999999)
  epsilon: float = setting(1e-8, "added to the root of Adam's second moment", low=1e-15, high=1.0)
  momentum: float = setting(0.9, "momentum of SGD", low=0.0, high=0.999999)
  moment_dtype: str = setting(
    "float32", "type of Adam's first moment or of SGD's momentum", choices=("float32", "bfloat16")
  )
  weight_decay: float = setting(
    0.0, "decoupled decay; multiplied by the learning rate", low=0.0, high=1e4
  )
  decay_rules: tuple = setting(
    DECAY_RULES,
    "(regex of the whole parameter name, factor on the weight decay); the first "
    "match counts and every parameter must match one",
  )
  trainable: str = setting(
    ".*",
    "regex of the whole names of the parameters that are trained, such as head/.* for a linear "
    "probe; the others stay as they are and have neither moments nor an average. Blocks can be "
    "told apart with config.model.scan=False alone",
  )
  clip_norm: float = setting(
    0.0, "largest global norm of the gradients; 0: no clipping", low=1e-6, high=1e6, off=0.0
  )
  ema: float = setting(
    0.0, "factor of the parameters' moving average; 0: none", low=0.0, high=0.999999999
  )


@dataclasses.dataclass(frozen=True)
class Schedule:
  """Learning rate: linear warm-up from 0, then decay to the end value."""

  learning_rate: float = setting(
    1e-3, "base learning rate, reached after warm-up", low=0.0, high=MOST_NUMBER
  )
  warmup: Duration = group(Duration)
  decay: str = setting(
    "cosine", "shape after warm-up", choices=("linear", "cosine", "constant", "steps")
  )
  drops: tuple = setting(
    (),
    "with decay=steps: the shares of the run, ascending, after which the learning rate is divided "
    "by ten; end_learning_rate then has no say",
  )
  end_learning_rate: float = setting(
    0.0, "learning rate at the last step", low=0.0, high=MOST_NUMBER
  )


@dataclasses.dataclass(frozen=True)
class Dataset:
  """Where examples come from; see vit_jax/data/sources for the kinds.

  An evaluation set whose source is empty is left out.
  """

  source: str = setting(
    "",
    "tfds:NAME[/CONFIG][:VERSION], folder:DIR, objectnet:DIR, vtab:TASK, digits or synthetic",
  )
  split: str = setting(
    "",
    "split in TFDS's syntax, such as train[:90%]; of a folder, a random part of each class such as "
    "[:90%], or empty",
  )
  image_key: str = setting("image", "TFDS feature that holds the image")
  label_key: str = setting("label", "TFDS feature that holds the label or the labels")
  exclude: str = setting(
    "", "file that names examples to leave out, as tools/dedup.py writes it; empty: none"
  )
  subset: int = setting(
    0,
    "random examples, of those that `exclude` leaves; the same for every run, whatever its seed, "
    "and the smaller subset inside the larger; 0: all",
    low=0,
    high=10**12,
  )
  resize: float = setting(
    -1.0,
    "of an evaluation set, in place of config.data.evaluate_resize: 0 resizes straight to the "
    "square; else the smaller side gets so many times config.data.image_size, at least 1, and the "
    "centre is cut; -1: does not take its place",
    low=-1.0,
    high=8.0,
  )
  classes: int = setting(
    0,
    "of an evaluation set: 0 predicts among all classes; else among those alone that occur in the "
    "set, which must be so many",
    low=0,
    high=10**7,
  )


@dataclasses.dataclass(frozen=True)
class FewShot:
  """A linear probe of few training images a class; see vit_jax/evaluators/few_shot.py.

  One whose training or test source is empty is left out.
  """

  train: Dataset = group(Dataset)
  test: Dataset = group(Dataset)
  shots: tuple = setting((1, 5, 10, 25), "training images of each class")
  seeds: int = setting(
    3, "draws of the training images, with the seeds 0, 1, ...", low=1, high=1000
  )


@dataclasses.dataclass(frozen=True)
class Nearest:
  """Classes by the nearest training images; see vit_jax/evaluators/nearest.py.

  One whose training or test source is empty is left out.
  """

  train: Dataset = group(Dataset)
  test: Dataset = group(Dataset)
  neighbours: int = setting(20, "training images that vote", low=1, high=10**6)
  temperature: float = setting(
    0.07, "a vote weighs exp(cosine similarity / temperature)", low=0.001, high=1000.0
  )


@dataclasses.dataclass(frozen=True)
class Data:
  """Examples, and their way to the device."""

  train: Dataset = group(Dataset)
  evaluate: Mapping[str, Dataset] = named("sets that the head is scored on")
  sampling: str = setting(
    "",
    "how the order of every epoch, subsets, parts of folders and crops are drawn: uniform, or "
    "grain, as before release 0.2.0 (biased for some sizes; parts of folders by file name; some "
    "crops a little smaller than crop_area); empty: as when the run began, uniform where it is new",
    choices=("", "uniform", "grain"),
  )
  allow_overlap: bool = setting(
    False, "score images that are trained on; without it a run that would is refused"
  )
  image_size: int = setting(
    224,
    "side of the square images, pixels; 0, for --mode=evaluate alone: the weights' own",
    low=0,
    high=MOST_SIDE,
  )
  crop_area: tuple = setting(
    (0.05, 1.0), "least and largest share of the image's area in a training crop"
  )
  crop_aspect: tuple = setting((3 / 4, 4 / 3), "least and largest width / height of the crop")
  train_resize: int = setting(
    0,
    "training images: 0 takes the crops above; else the whole image is resized to a square of this "
    "many pixels and one of image_size is cut out at random",
    low=0,
    high=MOST_PIXELS,
  )
  flip: bool = setting(True, "flip half of the training images left to right")
  mixup: float = setting(
    0.0,
    "alpha of MixUp: training images are blended in pairs by a share drawn from "
    "Beta(alpha, alpha); 0: none",
    low=1e-3,
    high=1e3,
    off=0.0,
  )
  evaluate_resize: int = setting(
    0,
    "evaluation images: 0 resizes straight to the square; else "
    "the smaller side gets this many pixels and the centre is cut",
    low=0,
    high=MOST_PIXELS,
  )
  max_pixels: int = setting(
    2**26, "larger images are refused as decompression bombs", low=1, high=2**30
  )
  bad_limit: float = setting(
    0.01,
    "the run stops when more than this share of the training images cannot be decoded",
    low=0.0,
    high=1.0,
  )
  cache: str = setting(
    "",
    "folder that tools/cache.py has filled with the training images, decoded and reduced to "
    "cache_side: quicker to read, but crops are then taken from the reduced images; empty: none. "
    "Evaluation never uses it",
  )
  cache_side: int = setting(
    256,
    "smaller side of the images in the cache, pixels; smaller ones stay as they are",
    low=1,
    high=MOST_PIXELS,
  )
  threads: int = setting(16, "decoding threads per process", low=1, high=1024)
  workers: int = setting(0, "decoding processes per host; 0: threads only", low=0, high=256)
  ahead: int = setting(2, "batches put on the devices ahead of the step", low=1, high=64)


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
class NonFinite:
  """What a loss or gradient that is not finite does; the update is never applied."""

  action: str = setting(
    "stop", "end the run, or leave the update out and go on", choices=("stop", "skip")
  )
  limit: int = setting(
    10, "with skip: updates left out in a row before the run stops", low=1, high=10**9
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


def to_dict(config) -> dict[str, Any]:
  """The settings as plain nested dictionaries, ready for JSON."""
  return dataclasses.asdict(config)


def to_config_dict(config) -> ml_collections.ConfigDict:
  """The settings as the command line sees them: `config_flags` overrides any key of it.

  A whole number for what may be a fraction becomes one, since an override must have its type.
  """
  return ml_collections.ConfigDict(to_dict(from_dict(to_dict(config))))


def from_dict(values: Mapping[str, Any]) -> Config:
  """Builds a `Config`; every key must be given.

  Raises:
    ConfigError: a key that is unknown or missing, a wrong type, a value out of bounds.
  """
  return _build(Config, values, "config")


def replace_units(values: dict[str, Any], overridden: list[str]) -> dict[str, Any]:
  """Lets a duration's unit given on the command line replace the unit of the recipe.

  `overridden` holds dotted keys, such as `duration.steps`. Two units given for one duration
  are left as they are, for the check to refuse.
  """
  units = [field.name for field in dataclasses.fields(Duration)]
  for key in overridden:
    *path, unit = key.split(".")
    node = values
    for part in path:
      node = node[part]
    if unit not in units or set(node) != set(units) or not node[unit]:
      continue
    for other in units:
      if ".".join([*path, other]) not in overridden:
        node[other] = 0
  return values


def nearest(word: str, known) -> str:
  """`known` in words, the ones most like `word` first; upper and lower case are alike."""
  return ", ".join((alike(word, sorted(known), 0.5) or sorted(known))[:5])


def unknown(path: str, key: str, known) -> str:
  """One sentence on a key that is no setting of the group `path`, which has those of `known`.

  It names what is called so elsewhere, then the settings whose own names are most like the key; of
  equals, those of this group first.
  """
  here = [f"{path}.{name}" for name in sorted(known)] or [path]
  names = dict.fromkeys([*here, *_dotted(to_dict(Config()), "config")])
  found = alike(key, names, 0.6, own=lambda name: name.rpartition(".")[2])
  called = [setting for setting in [synonyms.ours(key)] if setting]
  near = dict.fromkeys([*called, *(found or ([] if called else here))])
  return f"{path}.{key} is not a setting; nearest: {', '.join([*near][:5])}."


def alike(word: str, names, cutoff: float, own=str) -> list[str]:
  """Those of `names` whose `own` part is like the word in any case, the most like first.

  The cutoff is difflib's: 1 is the same, 0 anything.
  """
  keys = {own(name).lower() for name in names}
  close = difflib.get_close_matches(word.lower(), keys, cutoff=cutoff)
  return [name for like in close for name in names if own(name).lower() == like]


def missing_recipe(path: str) -> str:
  """One sentence on a recipe that is not there, with those of its folder and of configs/."""
  folders = pathlib.Path(path).parent, pathlib.Path("configs")
  others = {str(other) for folder in folders for other in folder.glob("*.py")}
  if others:
    return f"There is no recipe {path}; nearest: {nearest(path, others)}."
  return (
    f"There is no recipe {path}, nor any other in its folder or in configs; run from the project's "
    "root, or give the recipe's whole path."
  )


def _dotted(values: Mapping[str, Any], path: str) -> list[str]:
  """The dotted names of all settings and groups below `path`."""
  names = []
  for key, value in values.items():
    names.append(f"{path}.{key}")
    if isinstance(value, Mapping):
      names += _dotted(value, names[-1])
  return names


def _build(kind, values, path):
  if not isinstance(values, Mapping):
    raise ConfigError(f"{path}={values!r} is one value; it must be a group of settings.")
  fields = {field.name: field for field in dataclasses.fields(kind)}
  for key in values:
    if key not in fields:
      raise ConfigError(unknown(path, key, fields))
  missing = fields.keys() - values.keys()
  if missing:
    raise ConfigError(
      f"{path} lacks {', '.join(sorted(missing))}; start from vit_jax.config.Config."
    )
  built = kind(**{key: _value(fields[key], values[key], f"{path}.{key}") for key in fields})
  if kind is Duration and len(built.given()) > 1:
    raise ConfigError(
      f"{path} is given twice, as {built.given()}; keep one and set the others to 0."
    )
  return built


def _build_named(kind, values, path):
  if not isinstance(values, Mapping):
    raise ConfigError(f"{path}={values!r} is one value; it must be groups of settings by name.")
  return {name: _build(kind, item, f"{path}.{name}") for name, item in values.items()}


def _value(field, value, path):
  if dataclasses.is_dataclass(field.type):
    return _build(field.type, value, path)
  if get_origin(field.type) is Mapping:
    return _build_named(get_args(field.type)[1], value, path)
  value = _typed(field.type, value, path)
  _check_bounds(value, path, **field.metadata)
  return value


def _typed(kind, value, path):
  if kind is float and type(value) is int and abs(value) < MOST_NUMBER:
    return float(value)
  if kind is float and isinstance(value, float) and not math.isfinite(value):
    raise ConfigError(f"{path}={value} is not a finite number; give one.")
  if kind is tuple and isinstance(value, (list, tuple)):
    items = tuple(tuple(item) if isinstance(item, list) else item for item in value)
    _check_items(items, path)
    return items
  if type(value) is not kind:
    given = type(value).__name__
    raise ConfigError(f"{path}={shown(value)} is {given}; it must be {kind.__name__}.")
  if kind is str:
    _check_text(value, path)
  return value


def _check_items(items, path):
  if len(items) > MOST_ITEMS:
    raise ConfigError(f"{path} holds {len(items):,} values; the most is {MOST_ITEMS:,}.")
  if any(type(item) is int and abs(item) > MOST_NUMBER for item in items):
    raise ConfigError(f"{path}={shown(items)} holds a number beyond {MOST_NUMBER:g}; lower it.")


def _check_text(value, path):
  if len(value) > MOST_TEXT:
    raise ConfigError(f"{path} has {len(value):,} characters; the most is {MOST_TEXT:,}.")
  if any(unicodedata.category(c) == "Cc" for c in value):
    raise ConfigError(
      f"{path}={shown(value)} holds a control character, such as a line break; leave it out."
    )


def _check_bounds(value, path, *, meaning, choices, low, high, off):
  if choices and value not in choices:
    raise ConfigError(
      f"{path}={shown(value)} is not a choice ({meaning}); nearest: {nearest(value, choices)}."
    )
  if off is not None and value == off:
    return
  also = "" if off is None else f", or {off:g}"
  if low is not None and not value >= low:
    raise ConfigError(f"{path}={shown(value)} is too small ({meaning}); the least is {low}{also}.")
  if high is not None and not value <= high:
    raise ConfigError(f"{path}={shown(value)} is too large ({meaning}); the most is {high}{also}.")
