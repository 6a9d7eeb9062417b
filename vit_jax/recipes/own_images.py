"""Training on a user's own images: chooses the splits to train on and score; rules do the rest."""

import dataclasses
from collections.abc import Mapping

from vit_jax.config import AUTO, Config, Data, Dataset, Model, recipe_file
from vit_jax.evaluation.classification import Classification
from vit_jax.learning.optimizers.adam import Adam
from vit_jax.learning.optimizers.sgd import SGD
from vit_jax.recipes.loading import columns_named
from vit_jax.recipes.suites import evaluation as suite

TRAINING = ("train", "training")
VALIDATION = ("validation", "valid", "val", "dev", "eval")
TEST = ("test", "testing")
PART = "[:90%]"
REST = "[90%:]"
OF_EACH_CLASS = " of each class"


def parts_of(spec: str, named: Mapping[str, tuple[str, str]]) -> tuple[Dataset, Dataset, str]:
  """The training images, the held-out images, and how the two were found, in words.

  Args:
    spec: a data source.
    named: {name: (source, split)} of the splits that the data comes in.
  """
  train = next((named[name] for name in TRAINING if name in named), (spec, ""))
  for name in (*VALIDATION, *TEST):
    if train != (spec, "") and name in named:
      return Dataset(*train), Dataset(*named[name]), f"the data's parts, of which {name} is scored"
  source, split = train
  of_each = OF_EACH_CLASS
  if source.startswith("tfds:"):  # which is cut without regard to classes
    of_each = ""
  words = f"a random tenth{of_each} is scored, and not trained on"
  return Dataset(source, split + PART), Dataset(source, split + REST), words


def parted(spec: str, keys: Mapping[str, str]) -> dict:
  """The training data, the scored data and their origins, as fields of `Config`.

  Args:
    spec: a data source, or a folder.
    keys: its `image_key` and `label_key`, if they are not the usual ones.

  Raises:
    SourceError: there is no such data.
  """
  from vit_jax.data import sources  # imports JAX, which other recipes do not need

  spec = sources.meant(spec)
  train, held_out, words = parts_of(spec, sources.named_parts(spec))
  train = dataclasses.replace(train, **keys)
  held_out = dataclasses.replace(held_out, **keys)
  with columns_named("In a recipe's argument, "):
    source = sources.open_source(train.source, split=train.split, **keys)
  if source.multi_label:  # cut without regard to classes
    words = words.replace(OF_EACH_CLASS, "")
  return dict(
    data=Data(train=train),
    evaluate={"held_out": Classification(**vars(held_out))},
    origins=(("data.train", words),),
  )


def train(spec: str, model: str = "", **keys: str) -> Config:
  """A run from scratch on a user's own images.

  Args:
    spec: a data source, or a folder.
    model: its name, ours or another library's; empty: one that suits the number and the size of the
      images.
    **keys: as for `parted`.

  Raises:
    SourceError: there is no such data.
  """
  config = Config(
    model=Model(name=model or AUTO),
    optimizer=Adam(weight_decay=0.1, clip_norm=1.0),
    **parted(spec, keys),
  )
  return recipe_file.as_elsewhere(config, model)


def finetune(weights: str, spec: str, **keys: str) -> Config:
  """Fine-tuning of weights on a user's own images, at the size of the weights.

  As in Appendix B.1.1: SGD with momentum 0.9, cosine decay, clipping at 1, no weight decay, a new
  head, and crops of images that are a sixth larger. For weights whose images keep their proportions
  and are cropped, crops keep them too. The number of images decides the length, as in the
  BiT-HyperRule.

  Args:
    weights: what `config.init_from` takes.
    spec: a data source, or a folder.
    **keys: as for `parted`.

  Raises:
    SourceError: there is no such data.
  """
  return Config(
    init_from=weights,
    new_head=True,
    optimizer=SGD(momentum=0.9, clip_norm=1.0),
    **parted(spec, keys),
  )


def evaluation(weights: str, spec: str, **keys: str) -> Config:
  """The evaluation of weights on a user's own images.

  Args:
    weights: what `config.init_from` takes.
    spec: a data source, or a folder. If the data comes in splits, the test images are scored, or
      else the validation images.
    **keys: as for `parted`.

  Raises:
    SourceError: there is no such data.
  """
  from vit_jax.data import sources

  spec = sources.meant(spec)
  named = sources.named_parts(spec)
  scored = next((named[name] for name in (*TEST, *VALIDATION) if name in named), (spec, ""))
  base = suite("own")
  return dataclasses.replace(
    base, init_from=weights, evaluate={"own": Classification(*scored, **keys)}
  )
