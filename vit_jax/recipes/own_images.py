"""Training on a user's own images: settings chosen from the images, with what each comes from."""

import dataclasses
import statistics
from collections.abc import Iterator, Mapping, Sequence

from vit_jax.config import (
  AUTO,
  Config,
  ConfigError,
  Data,
  Dataset,
  Duration,
  Loss,
  Model,
  RunError,
  Schedule,
  model_names,
  overrides,
)
from vit_jax.evaluation.classification import Classification
from vit_jax.learning.optimizers.adam import Adam
from vit_jax.learning.optimizers.sgd import SGD
from vit_jax.process.text import listed
from vit_jax.recipes.bit import LENGTHS
from vit_jax.recipes.finetuning import RESIZE_RATIO, with_lengths
from vit_jax.recipes.following import Replace, fraction, unchanged
from vit_jax.recipes.loading import largest_side
from vit_jax.recipes.scales import SCALES
from vit_jax.recipes.suites import evaluation as suite
from vit_jax.storage.base import UnreachableError

SAMPLE = 32  # images whose size is looked at
SIDE = 224  # pixels, the most that is chosen
CROPPED = (0.5, 1.0)  # of the area, where crops keep the proportions of images
TRAINING = ("train", "training")
VALIDATION = ("validation", "valid", "val", "dev")
TEST = ("test", "testing")
PART, REST = "[:90%]", "[90%:]"
AVERAGED = 500  # steps of a run that has a moving average


@dataclasses.dataclass(frozen=True)
class OwnImages:
  """What settings are chosen from.

  Attributes:
    train, held_out: the parts.
    parted: how the two were found, in words.
    images: number of training images.
    side: the median of the smaller sides of a sample of them, pixels.
    multi_label: whether an image has any number of labels.
    class_names: of the labels.
  """

  train: Dataset
  held_out: Dataset
  parted: str
  images: int
  side: int
  multi_label: bool = False
  class_names: Sequence[str] = ()

  def trained_on(self, data: Data) -> "OwnImages":
    """The same with another part of the training data, if `data` names one.

    Raises:
      ConfigError: it names other data, which the settings would not suit.
    """
    if data.mixed() or data.train.source != self.train.source:
      other = "config.data.mix" if data.mixed() else f"config.data.train.source={data.train.source}"
      raise ConfigError(
        f"{other} replaces {self.train.source}, which the recipe chose its settings for; name the "
        "data in the recipe's argument instead, or take another recipe."
      )
    if data.train == self.train:
      return self
    from vit_jax.data import datasets

    source = datasets.of_run(data).open("config.data.train", data.train).source
    return dataclasses.replace(self, images=len(source))

  @property
  def number(self) -> str:
    """The number of training images, in words."""
    return f"{self.images:,} training images"

  @property
  def loss(self) -> Loss:
    """That of one label for each image, or of any number of them."""
    return Loss(kind="sigmoid") if self.multi_label else Loss()

  @property
  def origins(self) -> tuple[tuple[str, str], ...]:
    """Where the parts, the classes, the loss and the type of the activations come from."""
    several = (("loss.kind", "images have any number of labels"),) if self.multi_label else ()
    classes = "model.num_classes", f"the data: {listed(self.class_names)}"
    return ("data.train", self.parted), classes, *several, ("model.compute_dtype", "the devices")


def look_at(spec: str, keys: Mapping[str, str]) -> OwnImages:
  """Opens the images, and decodes a few of them.

  Args:
    spec: a data source, or a folder.
    keys: `image_key` and `label_key` of it, as far as they are not the usual ones.

  Raises:
    SourceError: there is no such data.
  """
  from vit_jax.data import sources  # imports JAX, which other recipes do not need

  spec = sources.recognised(spec)
  *parts, parted = parts_of(spec, sources.named_parts(spec))
  train, held_out = (dataclasses.replace(part, **keys) for part in parts)
  try:
    source = sources.open_source(train.source, split=train.split, **keys)
  except sources.ColumnError as error:
    raise sources.ColumnError(
      f"{error} In a recipe's argument, DATA,label_key=NAME and DATA,image_key=NAME name them."
    ) from error
  if source.multi_label or spec.startswith("tfds:"):  # parts of these are parts of all images
    parted = parted.replace(" of each class", "")
  several, classes = source.multi_label, source.class_names
  return OwnImages(train, held_out, parted, len(source), median_side(source), several, classes)


def parts_of(spec: str, named: Mapping[str, tuple[str, str]]) -> tuple[Dataset, Dataset, str]:
  """The training images, those that are held out, and how the two were found, in words.

  Args:
    spec: a data source.
    named: {name: (source, split)} of the parts that the data comes in.
  """
  train = next((named[name] for name in TRAINING if name in named), (spec, ""))
  for name in (*VALIDATION, *TEST):
    if train != (spec, "") and name in named:
      return Dataset(*train), Dataset(*named[name]), f"the data's parts, of which {name} is scored"
  source, split = train
  parts = Dataset(source, split + PART), Dataset(source, split + REST)
  return *parts, "a random tenth of each class is scored, and not trained on"


def median_side(source) -> int:
  """The median of the smaller sides of a sample of images, in pixels; 0: none can be decoded."""
  from vit_jax.data import images

  def sides() -> Iterator[int]:
    for index in range(0, len(source), max(1, len(source) // SAMPLE)):
      try:
        yield min(images.as_rgb(source[index].image, max_pixels=Data().max_pixels).shape[:2])
      except images.BadImage:
        continue

  return round(statistics.median([*sides()] or [0]))


def patch_of(side: int) -> int:
  """The side of a patch for images of this side, in pixels, so that there are some 16 to 200."""
  return 4 if side <= 40 else 8 if side <= 96 else 16


def batch_of(images: int, most: int) -> int:
  """The largest power of two that is at most `most` and a quarter of the images."""
  return min(most, 1 << max(images // 4, 1).bit_length() - 1)


def train(spec: str, model: str = "", replace: Replace = unchanged, **keys: str) -> Config:
  """A run from scratch on a user's own images.

  Args:
    spec: a data source, or a folder.
    model: its name, here or in another library; empty: one that suits the number and the size of
      the images.
    replace: as in vit_jax/recipes/following.py.
    **keys: as of `look_at`.

  Raises:
    SourceError: there is no such data.
    ConfigError: there is no such model.
  """
  own = look_at(spec, keys)
  first = from_scratch(own, model)
  asked = replace(first)
  if asked.model.name != first.model.name:
    model = asked.model.name
  other_size = asked.data.image_size != first.data.image_size
  own = own.trained_on(asked.data)
  chosen = from_scratch(own, model, asked.data.image_size if other_size else 0)
  return with_shares(replace(chosen), own.images)


def from_scratch(own: OwnImages, model: str, side: int = 0) -> Config:
  """The settings of a run from scratch.

  Args:
    own: the images.
    model: as for `train`.
    side: of the images that the model sees, pixels; 0: that of the images themselves.
  """
  scale = next(row for row in SCALES if own.images <= row.most)
  small = patch_of(own.side) < 16
  name = model_names.ours(model) or f"{scale.model}/{patch_of(side or own.side)}"
  shape = {} if model else scale.shape
  sides = f"images of about {own.side} pixels"
  config = Config(
    batch_size=batch_of(own.images, scale.batch_size),
    accumulation=0,
    duration=Duration(epochs=scale.epochs),
    loss=own.loss,
    model=Model(name=name, compute_dtype=AUTO, **shape),
    optimizer=Adam(weight_decay=0.1, clip_norm=1.0),
    schedule=Schedule(learning_rate=scale.learning_rate),
    data=Data(
      train=own.train,
      image_size=largest_side(name, side or min(SIDE, max(own.side, 16))),
      crop_area=(scale.crop, 1.0),
      flip=not small,
    ),
    evaluate={"held_out": Classification(**vars(own.held_out))},
    origins=(
      *own.origins,
      ("model.name", "the recipe's argument" if model else f"{own.number}, {sides}"),
      *((f"model.{key}", own.number) for key in shape),
      ("data.image_size", f"{sides}, and the patches"),
      ("data.flip", "small pictures may be of signs" if small else "photographs"),
      *((key, own.number) for key in ("data.crop_area", "batch_size", "duration")),
      *((key, own.number) for key in ("schedule.learning_rate", "schedule.warmup")),
      ("optimizer.ema", own.number),
    ),
  )
  return with_shares(overrides.as_elsewhere(config, model), own.images)


def with_shares(config: Config, images: int) -> Config:
  """The settings with what is a share of the length: warm-up, evaluations, saves, the average."""
  duration, tenth = config.duration, fraction(config.duration, 10)
  taken = duration.examples + duration.epochs * images
  steps = duration.steps + taken / config.batch_size
  optimizer = config.optimizer
  if isinstance(optimizer, Adam):
    optimizer = dataclasses.replace(optimizer, ema=average_over(steps))
  return dataclasses.replace(
    config,
    log_every=Duration(steps=max(1, min(50, round(steps / 100)))),
    evaluate_every=tenth,
    optimizer=optimizer,
    schedule=dataclasses.replace(config.schedule, warmup=fraction(duration, 20)),
    checkpoint=dataclasses.replace(config.checkpoint, every=tenth),
  )


def average_over(steps: float) -> float:
  """The factor of a moving average over 50 steps, or a fiftieth of a long run; 0: none.

  After ten such lengths nothing is left of the start.
  """
  return round(1 - 1 / max(50, steps / 50), 6) if steps >= AVERAGED else 0.0


def finetune(weights: str, spec: str, replace: Replace = unchanged, **keys: str) -> Config:
  """Fine-tuning of weights on a user's own images, at the size of the weights.

  As in Appendix B.1.1: SGD with momentum 0.9, cosine decay, clipping at 1, no weight decay, a new
  head, and crops of images that are a sixth larger. For weights whose images keep their proportions
  and are cropped, crops keep them too. The number of images decides the length, as in the
  BiT-HyperRule.

  Args:
    weights: what `config.init_from` takes.
    spec: a data source, or a folder.
    replace: as in vit_jax/recipes/following.py.
    **keys: as of `look_at`.

  Raises:
    SourceError: there is no such data.
    ConfigError: there are no such weights, they cannot be read, or others replace them.
  """
  own, card = look_at(spec, keys), card_of(weights)
  asked = replace(on_weights(own, card, weights))
  if asked.init_from != weights:
    raise ConfigError(
      f"config.init_from={asked.init_from} replaces {weights}, which the recipe chose its settings "
      "for; name the weights in the recipe's argument instead."
    )
  own = own.trained_on(asked.data)
  config = with_lengths(replace(on_weights(own, card, weights)), own.images)
  steps = config.duration.in_steps(batch_size=config.batch_size, epoch_examples=own.images)
  return dataclasses.replace(config, log_every=Duration(steps=max(1, min(50, steps // 100))))


def on_weights(own: OwnImages, card, weights: str) -> Config:
  """The settings of a fine-tuning of `weights`, which have this card."""
  side = card.image_size
  steps = next(row.total for row in LENGTHS if own.images < row.examples)
  return Config(
    batch_size=batch_of(own.images, 512),
    accumulation=0,
    duration=Duration(steps=steps),
    init_from=weights,
    new_head=True,
    loss=own.loss,
    model=Model(name="", compute_dtype=AUTO),
    optimizer=SGD(momentum=0.9, clip_norm=1.0),
    schedule=Schedule(learning_rate=0.01),
    data=Data(
      train=own.train,
      image_size=side or SIDE,
      **(dict(crop_area=CROPPED) if card.resize else dict(train_resize_ratio=RESIZE_RATIO)),
      evaluate_resize=card.resize,
      evaluate_squeeze=card.squeeze,
    ),
    evaluate={"held_out": Classification(**vars(own.held_out))},
    origins=(
      *own.origins,
      ("model.name", weights),
      ("data.image_size", weights if side else "usual; the weights do not tell it"),
      *((("data.evaluate_resize", weights), ("data.crop_area", weights)) if card.resize else ()),
      *((("data.resampling", weights),) if card.resampling != Data().resampled() else ()),
      *((key, own.number) for key in ("batch_size", "duration", "schedule.warmup")),
    ),
  )


def card_of(weights: str):
  """How images are prepared for weights, as their card says.

  Raises:
    ConfigError: there are no such weights, or they cannot be read.
  """
  from vit_jax.inference import model as inference

  try:
    return inference.read(weights).card
  except UnreachableError:
    raise
  except (ValueError, OSError, RunError) as error:
    raise ConfigError(str(error)) from error


def evaluation(weights: str, spec: str, **keys: str) -> Config:
  """The evaluation of weights on a user's own images.

  Args:
    weights: what `config.init_from` takes.
    spec: a data source, or a folder. Of data in parts, the test images are scored, or else those
      for validation.
    **keys: as of `look_at`.

  Raises:
    SourceError: there is no such data.
  """
  from vit_jax.data import sources

  spec = sources.recognised(spec)
  named = sources.named_parts(spec)
  part = next((named[name] for name in (*TEST, *VALIDATION) if name in named), (spec, ""))
  base = suite("own")
  return dataclasses.replace(
    base, init_from=weights, evaluate={"own": Classification(*part, **keys)}
  )
