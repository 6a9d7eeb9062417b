"""Pre-training: the rows of Table 3."""

import dataclasses
import re
from collections.abc import Callable

from ml_collections import ConfigDict

from vit_jax.config import (
  Checkpoint,
  Config,
  Data,
  Dataset,
  Duration,
  Loss,
  Model,
  Schedule,
  to_config_dict,
)
from vit_jax.config.data import INCEPTION
from vit_jax.evaluation.classification import Classification
from vit_jax.evaluation.few_shot import FewShot
from vit_jax.learning.optimizers.adam import Adam
from vit_jax.recipes.loading import choice


@dataclasses.dataclass(frozen=True)
class PretrainingSet:
  """A dataset that the paper pre-trains on, with the columns of Table 3 that depend on it alone.

  Attributes:
    examples: training images.
    num_classes: outputs of the head.
    multi_label: whether an image can have several labels; the loss is then a sigmoid's.
    decay: shape of the learning rate.
    weight_decay, dropout, clip_norm: settings.
    train, validation: where the images are.
  """

  examples: int
  num_classes: int
  multi_label: bool
  decay: str
  weight_decay: float
  dropout: float
  clip_norm: float
  train: Dataset = Dataset()
  validation: Dataset = Dataset()


IMAGENET = "tfds:imagenet2012"
# By the name in config.data.dataset. JFT-300M is not public and ImageNet-21k is not in TFDS: the
# user must give their sources.
DATASETS = {
  "jft": PretrainingSet(303_000_000, 18_291, True, "linear", 0.1, dropout=0.0, clip_norm=0.0),
  "imagenet21k": PretrainingSet(
    12_400_000, 21_843, True, "linear", 0.03, dropout=0.1, clip_norm=0.0
  ),
  "imagenet": PretrainingSet(
    *(1_281_167, 1000, False, "cosine", 0.3),
    dropout=0.1,
    clip_norm=1.0,
    train=Dataset(IMAGENET, "train"),
    validation=Dataset(IMAGENET, "validation"),
  ),
}

# The paper's few-shot measure during training. The user must give its sources: it needs ImageNet.
IN_LOOP_PROBE = FewShot(
  train=Dataset(split="train"), test=Dataset(split="validation"), shots=(5,), seeds=1
)


def pretraining(
  model: str, dataset: str, *, epochs: tuple[int, ...], learning_rate: float, resnet: bool = False
) -> Callable[..., ConfigDict]:
  """Makes `get_config` for one model on one dataset: rows of Table 3 that differ in length.

  Args:
    model: a model name from the paper.
    dataset: a key of `DATASETS`.
    epochs: allowed lengths; the recipe's argument chooses one, by default the first.
    learning_rate: base learning rate, reached after the warm-up.
    resnet: as for `pretrain`.
  """

  def get_config(length=f"{epochs[0]}"):
    row = dict(epochs=choice(length, *epochs), learning_rate=learning_rate, resnet=resnet)
    return to_config_dict(pretrain(model, dataset, **row))

  return get_config


def pretrain(
  model: str, dataset: str, *, epochs: float, learning_rate: float, resnet: bool = False
) -> Config:
  """One row of Table 3; the arguments are its columns, and the dataset decides the others.

  Adam (0.9, 0.999), batch 4096, warm-up of 10,000 steps, 224 px. Models with a Transformer have a
  representation layer before the head and dropout; a `resnet` has neither. Gradients are clipped to
  a global norm of 1, on ImageNet only. Three settings are not in the paper, but its authors have
  stated them: the sigmoid loss on the two large datasets, the initial bias of -10 in the head, and
  1e-5 as the end of the linear schedule.
  """
  data = DATASETS[dataset]
  loss, head_bias = _loss_and_bias(data.multi_label)
  dropout = 0.0 if resnet else data.dropout
  end_learning_rate = 1e-5 if data.decay == "linear" else 0.0
  return Config(
    batch_size=4096,
    duration=Duration(epochs=epochs),
    log_every=Duration(steps=50),
    evaluate_every=Duration(steps=5000),
    model=Model(
      name=model,
      num_classes=data.num_classes,
      representation_layer=not resnet,
      dropout=dropout,
      head_bias=head_bias,
      compute_dtype="bfloat16",
    ),
    loss=loss,
    optimizer=Adam(weight_decay=data.weight_decay, clip_norm=data.clip_norm, ema=0.0),
    schedule=Schedule(
      learning_rate=learning_rate,
      warmup=Duration(steps=10_000),
      decay=data.decay,
      end_learning_rate=end_learning_rate,
    ),
    data=Data(train=data.train, **of_paper(dataset)),
    evaluate={"val": Classification(**vars(data.validation)), "imagenet": IN_LOOP_PROBE},
    checkpoint=Checkpoint(every=Duration(steps=1000), keep_every=Duration(steps=50_000)),
  )


def _loss_and_bias(multi_label: bool) -> tuple[Loss, float]:
  """The loss, and the initial bias of the head that suits it."""
  if multi_label:
    return Loss(kind="sigmoid"), -10.0
  return Loss(kind="softmax"), 0.0


def of_paper(dataset: str) -> dict:
  """Settings of config.data in the paper's pre-training: 224 px, Inception crops, flips."""
  return dict(dataset=dataset, image_size=224, crop_area=INCEPTION, flip=True)


def examples_of(config: Config) -> int | None:
  """The number of training images, by config.data.train.subset or else config.data.dataset.

  For a split such as train[:99%], the images in that split. None: neither is given, the run trains
  on a mix, or the split has another form.
  """
  if config.data.mixed():
    return None
  train = config.data.train
  known = DATASETS.get(config.data.dataset)
  whole = None
  if known:
    whole = part_of(known.examples, train.split)
  if not train.subset:
    return whole
  return min(train.subset, whole or train.subset)


def part_of(examples: int, split: str) -> int | None:
  """How many images a split such as train, train[:99%] or train[51200:] has; None: another form."""
  if "[" not in split:
    return examples
  match = re.fullmatch(r"\w+\[(\d+%?)?:(\d+%?)?\]", split)
  if not match:
    return None
  first, end = (_cut(text, examples) for text in (match[1] or "0", match[2] or "100%"))
  return end - first


def _cut(text: str, examples: int) -> int:
  """A number of images, or the nearest one to a percentage of them."""
  if not text.endswith("%"):
    return int(text)
  return round(examples * int(text[:-1]) / 100)
