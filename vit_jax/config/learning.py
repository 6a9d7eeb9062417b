"""Settings that all objectives and all update rules have, and of the learning rate."""

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from vit_jax.config.data import View
from vit_jax.config.fields import AUTO, MAX_NUMBER, Duration, Rule, length, name_of_kind, setting
from vit_jax.config.scales import average_over, in_words, scale_of, warmup_of
from vit_jax.process.errors import ConfigError

# Subtree of the parameters that an objective adds to those of the model.
OBJECTIVE_PARAMS = "objective"


@dataclasses.dataclass(frozen=True)
class ObjectiveSettings:
  """What a run learns: the settings that all objectives have, and what their class tells.

  The class of an objective has more settings, its own values of the attributes below, and the
  methods `check`, if any setting or model does not suit it, and `configured`.

  Attributes:
    needs_labels: whether a batch holds labels.
    trains_head: whether it trains the model's head; otherwise its parameters may lack a head.
    sharding: the rules by which its own parameters are split over devices, before those of the
      model; see `vit_jax.devices.mesh`.
    teacher: the weights of another model that the model learns from; "": none.
    representation: the features that evaluations without a head use, if their settings do not say:
      "pre_logits" or "patches"; see `vit_jax.evaluation.features`.
    position_resizing: the value of config.position_resizing from scratch, one of its choices.
  """

  kind: str = name_of_kind("", "what is learned")

  needs_labels: ClassVar[bool] = False
  trains_head: ClassVar[bool] = False
  sharding: ClassVar = ((f"{OBJECTIVE_PARAMS}/.*", ()),)
  teacher: ClassVar[str] = ""
  representation: ClassVar[str] = "pre_logits"
  position_resizing: ClassVar[str] = "bilinear_aligned"

  def views(self, data) -> Mapping[str, View]:
    """The images of a training batch, by name, for a run with these settings of config.data."""
    return {"image": View(data)}

  def fields(self, data) -> Mapping[str, Any]:
    """Further fields of the source in a training batch, as `vit_jax.data.sources.base.Field`s."""
    del data
    return {}

  def check(self, config, model):
    """Checks that the settings of a run and its `model`, a Flax module, suit the objective.

    Raises:
      ConfigError: they do not.
    """

  def check_labels(self, data: str, multi_label: bool):
    """Checks that the labels of the training data suit the objective.

    Args:
      data: the training data, in words.
      multi_label: whether its images have any number of labels.

    Raises:
      ConfigError: they do not.
    """

  def configured(self, config, model):
    """The `vit_jax.learning.objective.Objective` of a run with checked settings."""
    raise NotImplementedError


def kind_of_loss(labels) -> tuple[str, str]:
  """The sigmoid for images with any number of labels."""
  if labels().multi_label:
    return "sigmoid", "images have any number of labels"
  return "softmax", ""


@dataclasses.dataclass(frozen=True)
class Loss:
  """How the logits of a head are scored, in training and in evaluation."""

  kind: str = setting(
    AUTO,
    "cross-entropy over classes (`softmax`), or per class (`sigmoid`)",
    auto=Rule(
      ("facts.labels",), "sigmoid if images have any number of labels, else softmax", kind_of_loss
    ),
    usual="softmax",
    choices=("softmax", "sigmoid"),
  )
  label_smoothing: float = setting(
    0.0,
    "fraction of the target that is spread over all classes; with the sigmoid, each target goes "
    "this fraction of the way to 1/2",
    low=0.0,
    high=1.0,
  )
  over_classes: str = setting(
    "sum",
    "`sum` of the losses of all classes, or their `mean`, as in DeiT III",
    choices=("sum", "mean"),
    used_if=(("loss.kind", "sigmoid"),),
  )


DECAYING = (("optimizer.weight_decay",),)
DECAY_RULES = (
  (r".*/kernel", 1.0),
  (r".*/(bias|scale)", 0.0),
  (r"cls|\w+_tokens|.*/(probe|mask_embedding)|.*/pos_embedding\w*", 0.0),
)


def factor_of_average(usual, init_from, length, batch_size, images) -> tuple[float, str]:
  """An average over a fiftieth of a run from scratch with Adam; none of a short one."""
  if not usual or init_from:
    return 0.0, ""
  steps = length.exact_steps(batch_size=batch_size, epoch_examples=images)
  return average_over(steps), in_words(images())


ALL = ".*"


@dataclasses.dataclass(frozen=True)
class Optimizer:
  """The settings that all update rules have; see vit_jax/learning/optim.py for the formulas.

  Attributes:
    moment: the name of the fields of the state of `precondition` that are kept in `moment_dtype`.
    needs_blocks: whether it is for models with blocks of a Transformer only.
    elementwise: whether the update of a number follows from that number's own gradient, value and
      moments. On GPUs it is then computed twice, which takes less than keeping the old values.
    of_start: names of those that a run keeps from its first step.
    is_averaged: whether a run from scratch has a moving average if `ema` is AUTO.
    rate_for_weights: base learning rate of fine-tuning if it is AUTO; 0: it must be given.
    rated_as_adam: whether updates are as large as Adam's, whose learning rates from scratch it has.

  A class has `precondition`, and overrides what it does differently: `adapt`, `around`, `averages`
  with `averaged`, `check`, `check_start`.
  """

  moment: ClassVar[str]
  is_averaged: ClassVar[bool] = False
  rate_for_weights: ClassVar[float] = 0.0
  rated_as_adam: ClassVar[bool] = False
  needs_blocks: ClassVar[bool] = False
  elementwise: ClassVar[bool] = True
  of_start: ClassVar[tuple[str, ...]] = ()

  kind: str = name_of_kind("", "the update rule")
  moment_dtype: str = setting(
    "float32",
    "type of the first moment or momentum; bfloat16 takes half the memory, but loses changes below "
    "0.2%: with a decay over 0.998 a moment stays while gradients are small",
    choices=("float32", "bfloat16"),
  )
  weight_decay: float = setting(
    0.0, "weight decay, multiplied by the learning rate", low=0.0, high=1e4
  )
  end_weight_decay: float = setting(
    0.0,
    "weight decay at the end of the run, to which a cosine leads from weight_decay (DINO: 0.4 from "
    "0.04); 0: weight_decay throughout",
    low=1e-9,
    high=1e4,
    off=0.0,
    used_if=DECAYING,
  )
  decay_kind: str = setting(
    "decoupled",
    "`decoupled`: added to the update after the moments, as in AdamW; `coupled`: to the clipped "
    "gradient before the moments, the usual L2 of SGD",
    choices=("decoupled", "coupled"),
    used_if=DECAYING,
  )
  decay_rules: tuple = setting(
    DECAY_RULES,
    "pairs (regex of a whole parameter name, factor on the weight decay); the first match counts, "
    "every parameter must match; with config.model.scan all blocks have one name",
    used_if=DECAYING,
  )
  trainable: str = setting(
    ALL,
    "regex of the whole names of the parameters to train, such as head/.* for a linear probe; with "
    "config.model.scan all blocks have one name; with config.lora.rank, .* means the head and LoRA",
  )
  layer_decay: float = setting(
    1.0,
    "for fine-tuning: the learning rate of each layer, from the embeddings to the head, is this "
    "factor times that of the next one",
    low=0.01,
    high=1.0,
    used_if=(("optimizer.trainable", ALL),),
  )
  clip_norm: float = setting(
    0.0, "gradients are clipped to this global norm; 0: no clipping", low=1e-6, high=1e6, off=0.0
  )
  ema: float = setting(
    AUTO,
    "decay of the parameters' moving average, which is then scored; 0: no average",
    auto=Rule(
      ("optimizer.is_averaged", "init_from", "duration", "batch_size", "facts.images"),
      "from scratch with Adam, the length of the run; else 0",
      factor_of_average,
      stays="always",
    ),
    low=0.0,
    high=0.999999999,
  )
  # Without `used_if`: recipes of the paper set it, and ema=0.0 alone must switch their average off.
  ema_corrected: bool = setting(
    True,
    "correct the bias of the moving average, as Adam does: the initial parameters have no weight; "
    "False, as in the paper: after n steps their weight is ema^n, 13.5% after 20,000 at 0.9999",
  )
  end_ema: float = setting(
    0.0,
    "decay of the moving average at the end of the run, to which a cosine leads from ema (DINO: 1 "
    "from 0.996); 0: ema throughout",
    low=1e-9,
    high=1.0,
    off=0.0,
    used_if=(("optimizer.ema",), ("optimizer.ema_corrected", False)),
  )

  def precondition(self):
    """The `optax.GradientTransformation` of a kind, from gradients to directions.

    The directions are not multiplied by the learning rate, nor by -1, nor decayed, nor clipped:
    `learning/optim.py` does all of this. Its state is made of named tuples. It is given the tree of
    the parameters, and has to know of it:

    - parameters that are not trained (`trainable`) are None, in gradients and updates too;
    - with config.model.scan all blocks are one subtree, whose arrays have the blocks as their first
      axis: a matrix of a block is then one of a stack;
    - the kernels of queries, keys and values are (D, heads, D_h), that of their output is
      (heads, D_h, D): matrices (D, D) in which the heads have an axis of their own.
    """
    raise NotImplementedError

  def adapt(self):
    """Changes directions after decoupled weight decay; by default it changes nothing.

    In every other respect it is like `precondition`.
    """
    import optax  # imports JAX, which settings alone do not need

    return optax.identity()

  def around(self, update):
    """Wraps the whole update, from gradients to changes of the parameters; by default not at all.

    Args:
      update: a `GradientTransformationExtraArgs`, whose update gets `learning_rate`.
    """
    return update

  @property
  def averages(self) -> bool:
    """Whether the state of a run has a moving average of the parameters."""
    return bool(self.ema)

  def averaged(self, state, params):
    """The average, of a kind whose average follows from its state and the parameters; else None."""
    del state, params

  def check(self, config):
    """Checks that the settings of a run suit the update rule.

    Raises:
      ConfigError: they do not.
    """

  def check_start(self, config, new: Collection[str]):
    """Checks that the initial parameters suit the update rule.

    Args:
      config: the settings of the run.
      new: the names of the parameters that do not come from weights.

    Raises:
      ConfigError: they do not.
    """


def peak_of(kind, for_weights, as_adam, init_from, scored_at_once, images) -> tuple[float, str]:
  """The base learning rate of an optimizer that has one for this start; 0 for an evaluation.

  Raises:
    ConfigError: it has none.
  """
  if init_from and for_weights:
    return for_weights, ""
  if not init_from and as_adam:
    return scale_of(images()).learning_rate, in_words(images())
  if scored_at_once():
    return 0.0, ""
  start = "for fine-tuning" if init_from else "from scratch"
  raise ConfigError(
    f"config.schedule.learning_rate has no default {start} with config.optimizer.kind={kind!r}; "
    "give --config.schedule.learning_rate=RATE."
  )


def length_of_warmup(init_from, new_head, length, batch_size, images) -> tuple[Duration, str]:
  """A twentieth of a run from scratch; of fine-tuning 500 steps, or a fifth of fewer."""
  if not (init_from or new_head):
    return length.part(20), "a twentieth of the run"
  examples = images() if length.epochs else 0
  steps = length.in_steps(batch_size=batch_size, epoch_examples=examples)
  return Duration(steps=warmup_of(steps)), "the length of fine-tuning"


@dataclasses.dataclass(frozen=True)
class Schedule:
  """Learning rate: linear warm-up from 0, then decay to the end value."""

  learning_rate: float = setting(
    AUTO,
    "base learning rate, reached after warm-up",
    auto=Rule(
      (
        *("optimizer.kind", "optimizer.rate_for_weights", "optimizer.rated_as_adam"),
        *("init_from", "facts.scored_at_once", "facts.images"),
      ),
      "0.01 for fine-tuning with SGD; from scratch with Adam or Muon, the number of images",
      peak_of,
    ),
    low=0.0,
    high=MAX_NUMBER,
  )
  warmup: Duration = length(
    auto=Rule(
      ("init_from", "new_head", "duration", "batch_size", "facts.images"),
      "a twentieth of the run; of fine-tuning 500 steps, or a fifth of fewer than 2,500",
      length_of_warmup,
      beside=("batch_size",),  # it is as long as with the run's first
    )
  )
  decay: str = setting(
    "cosine", "shape after warm-up", choices=("linear", "cosine", "constant", "steps")
  )
  drops: tuple = setting(
    (),
    "ascending fractions of the run; at each one the learning rate is divided by ten",
    used_if=(("schedule.decay", "steps"),),
  )
  end_learning_rate: float = setting(
    0.0,
    "learning rate that the decay would reach one step after the last update",
    low=0.0,
    high=MAX_NUMBER,
    used_if=(("schedule.decay", "cosine", "linear"),),
  )


@dataclasses.dataclass(frozen=True)
class NonFinite:
  """What happens if the loss or a gradient is not finite; the update is never applied."""

  action: str = setting(
    "stop", "`stop` the run, or `skip` the update and go on", choices=("stop", "skip")
  )
  limit: int = setting(
    10,
    "updates in a row that are skipped at most; the run stops at the next",
    low=1,
    high=10**9,
    used_if=(("non_finite.action", "skip"),),
  )
