"""Training on a user's own images: chooses the splits to train on and score; rules do the rest."""

import dataclasses
import inspect
from collections.abc import Mapping

from vit_jax.config import AUTO, Config, ConfigError, Data, Dataset, Model, recipe_file
from vit_jax.config.resolve import value_of, with_value
from vit_jax.evaluation.classification import Classification
from vit_jax.learning.optimizers.adam import Adam
from vit_jax.learning.optimizers.sgd import SGD
from vit_jax.process.text import listed
from vit_jax.recipes.following import Replace, unchanged
from vit_jax.recipes.loading import columns_named
from vit_jax.recipes.suites import evaluation as suite

PART = "[:90%]"
REST = "[90%:]"
SPLITS = "data.train.split", "evaluate.held_out.split"
NOT_GIVEN = "not given"
OF_EACH_CLASS = " of each class"
BOTH = (
  "; choose two of them by --config.data.train.split=NAME --config.evaluate.held_out.split=OTHER, "
  "or divide one by --config.data.train.split='NAME[:90%]' --config.evaluate.held_out.split="
  "'NAME[90%:]'"
)


def parts_of(spec: str, named: Mapping[str, tuple[str, str]]) -> tuple[Dataset, Dataset, str]:
  """The training images, the held-out images, and how the two were found, in words.

  Of a source without splits nothing is held out: its dataset is empty.

  Args:
    spec: a data source.
    named: {name: (source, split)} of the splits that the data comes in.

  Raises:
    SourceError: there is no such source.
  """
  from vit_jax.data import sources  # imports JAX, which other recipes do not need
  from vit_jax.data.sources import part

  word = next((name for name in part.TRAINING if name in named), "")
  train = named.get(word, (spec, ""))
  scored = part.TEST
  if word != part.BOTH:
    scored = (*part.VALIDATION, *part.TEST)
  for name in scored:
    if word and name in named:
      return Dataset(*train), Dataset(*named[name]), f"the data's parts, of which {name} is scored"
  source, split = train
  kind = sources.member(source)
  if "split" not in inspect.signature(kind).parameters:
    return Dataset(source), Dataset(), f"all images: {source} has no splits"
  of_each = OF_EACH_CLASS if kind.parts_by_class else ""
  words = f"a random tenth{of_each} is scored, and not trained on"
  if source != spec and len(named) == 1:
    words = f"only {min(named)} has folders of classes; {words}"
  return Dataset(source, split + PART), Dataset(source, split + REST), words


def check_part(train: Dataset, advice: str = ""):
  """Checks that training images of `parts_of` are not all parts of the data, scored ones too.

  Args:
    train: the training images.
    advice: how to choose splits of one source, after a semicolon.

  Raises:
    SourceError: the data comes in several parts, and none of them is for training.
  """
  from vit_jax.data import sources

  named = sources.named_parts(train.source) if train.split == PART else {}
  if len(named) > 1:
    listed_splits = ", ".join(split or name for name, (_, split) in named.items())
    of_their_own = [source for source, _ in named.values() if source != train.source]
    if of_their_own:
      advice = f"; give one of them instead: {listed(of_their_own)}"
    raise sources.SourceError(
      f"{train.source!r} has the splits {listed_splits}, and none of them is called train{advice}."
    )


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
  held_out = dataclasses.replace(held_out, **keys)
  return dict(
    data=Data(train=dataclasses.replace(train, **keys)),
    evaluate={"held_out": Classification(**vars(held_out))},
    origins=(("data.train", words),),
  )


def check_one_source(config: Config, replace: Replace):
  """Checks that the tenth that is held out of some images is not a tenth of others.

  Args:
    config: the settings, with the data of `parted`.
    replace: as in vit_jax/recipes/following.py.

  Raises:
    ConfigError: images of another source are trained on or scored, and it is not said which part.
  """
  from vit_jax.data import sources

  if not config.evaluate["held_out"].split.endswith(REST):
    return
  recipe = {key: value_of(config, key) for key in SPLITS}
  train, scored = _given(config, replace)
  if not scored.source or sources.anywhere(train.source) == sources.anywhere(scored.source):
    return
  pairs = zip(SPLITS, (train, scored), strict=True)
  left = [key for key, dataset in pairs if dataset.split == NOT_GIVEN]
  if left:
    whole = " ".join(f"--config.{key}={recipe[key].partition('[')[0]}" for key in left)
    parts = " ".join(f"--config.{key}='{recipe[key]}'" for key in left)
    raise ConfigError(
      f"The recipe trains on 90% of some images and scores their rest, but {train.source} is to be "
      f"trained on and {scored.source} scored; give {whole} for all images of both, or {parts} to "
      "go on with an earlier run."
    )


def _given(config: Config, replace: Replace) -> tuple[Dataset, Dataset]:
  """The training data and the scored data, with the split `NOT_GIVEN` where nobody gave one."""
  for key in SPLITS:
    config = with_value(config, key, NOT_GIVEN)
  given = replace(config)
  return given.data.train, given.evaluate["held_out"].scored()


def checked(config: Config, replace: Replace) -> Config:
  """The settings, with the origin of training data that may have several labels each.

  Args:
    config: the settings, with the data of `parted`.
    replace: as in vit_jax/recipes/following.py; the data that it leads to are opened.

  Raises:
    SourceError: there is no such data, or it has no such part; or of data that comes in parts, none
      of which is for training, it is not said which to train on and which to score.
    ConfigError: as `check_one_source`.
  """
  from vit_jax.data import sources

  check_one_source(config, replace)
  train = replace(config).data.train
  given, scored = _given(config, replace)
  names_split = given.split and not given.split.startswith("[")
  if given.split == NOT_GIVEN or (names_split and scored.source and scored.split == NOT_GIVEN):
    check_part(dataclasses.replace(train, split=config.data.train.split), BOTH)
  keys = dict(image_key=train.image_key, label_key=train.label_key)
  with columns_named("In a recipe's argument, "):
    source = sources.open_source(train.source, split=train.split, **keys)
  if not source.multi_label:
    return config
  # Their parts are cut without regard to classes.
  origins = [(key, words.replace(OF_EACH_CLASS, "")) for key, words in config.origins]
  return dataclasses.replace(config, origins=tuple(origins))


def train(spec: str, model: str = "", replace: Replace = unchanged, **keys: str) -> Config:
  """A run from scratch on a user's own images.

  Images are antialiased where they shrink, as photographs do, in training and in scoring.

  Args:
    spec: a data source, or a folder.
    model: its name, ours or another library's; empty: one that suits the number and the size of the
      images.
    replace: as for `checked`.
    **keys: as for `parted`.

  Raises:
    SourceError: there is no such data.
  """
  config = Config(
    model=Model(name=model or AUTO),
    optimizer=Adam(weight_decay=0.1, clip_norm=1.0),
    **parted(spec, keys),
  )
  if not replace(config).init_from:  # weights have a way of their own
    config = dataclasses.replace(
      config, data=dataclasses.replace(config.data, resampling="pillow_bilinear")
    )
  return checked(recipe_file.as_elsewhere(config, model), replace)


def finetune(weights: str, spec: str, replace: Replace = unchanged, **keys: str) -> Config:
  """Fine-tuning of weights on a user's own images, at the size of the weights.

  As in Appendix B.1.1: SGD with momentum 0.9, cosine decay, clipping at 1, no weight decay, a new
  head, and crops of images that are a sixth larger. For weights whose images keep their proportions
  and are cropped, crops keep them too. The number of images decides the length, as in the
  BiT-HyperRule.

  Args:
    weights: what `config.init_from` takes.
    spec: a data source, or a folder.
    replace: as for `checked`.
    **keys: as for `parted`.

  Raises:
    SourceError: there is no such data.
  """
  config = Config(
    init_from=weights,
    new_head=True,
    optimizer=SGD(momentum=0.9, clip_norm=1.0),
    **parted(spec, keys),
  )
  return checked(config, replace)


def evaluation(weights: str, spec: str, replace: Replace = unchanged, **keys: str) -> Config:
  """The evaluation of weights on a user's own images.

  Args:
    weights: what `config.init_from` takes.
    spec: a data source, or a folder. If the data comes in splits, the test images are scored, or
      else the validation images.
    replace: as in vit_jax/recipes/following.py; it may choose the part to score.
    **keys: as for `parted`.

  Raises:
    SourceError: there is no such data, or none of its parts is for scoring.
  """
  from vit_jax.data import sources
  from vit_jax.data.sources import part

  spec = sources.meant(spec)
  named = sources.named_parts(spec)
  words = (*part.TEST, *part.VALIDATION)
  scored = next((named[name] for name in words if name in named), (spec, ""))
  own = Classification(*scored, **keys)
  config = dataclasses.replace(suite("own"), init_from=weights, evaluate={"own": own})
  if scored == (spec, "") and len(named) > 1 and replace(config).evaluate.get("own") == own:
    raise sources.SourceError(
      f"{spec!r} has the splits {', '.join(named)}, and none of them is called test or val; choose "
      "one by --config.evaluate.own.split, or by --config.evaluate.own.source."
    )
  return config
