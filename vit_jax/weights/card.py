"""The model card: what a user of parameters must know, such as image size and class names.

Values in JSON files beside weights, of this project and of others, are read by rules.
"""

import dataclasses
import json
import math
import pathlib
import typing
from collections.abc import Collection, Mapping

import numpy as np

from vit_jax.config import (
  AUTO,
  MAX_PIXELS,
  MAX_SIDE,
  POSITION_RESIZING,
  RESAMPLING,
  Data,
  Model,
  Size,
  as_size,
  covers,
  scaled,
  sides,
)
from vit_jax.config.model import ARCHITECTURE, USUAL
from vit_jax.config.parsing import build
from vit_jax.data import crops
from vit_jax.data import datasets as opened
from vit_jax.data.datasets import History
from vit_jax.models.recognition import module_of
from vit_jax.process.text import nfc
from vit_jax.storage import files
from vit_jax.storage.files import write_text

MAX_BYTES = 64 * 2**20


class Rule(typing.NamedTuple):
  """A condition on a value, as a test and in words."""

  test: typing.Callable[[typing.Any], bool]
  words: str

  def broken(self, key: str, value) -> str:
    """A message if the value of `key` breaks the rule; "" if it does not."""
    if self.test(value):
      return ""
    return f"{key} is {repr(value)[:100]} and must be {self.words}"


Rules = dict[str, tuple[Rule, typing.Any]]  # {key: (rule, default if the key is missing)}


def one_of(*values) -> Rule:
  """The rule that a value is one of a few."""
  return Rule(lambda value: value in values, " or ".join(map(repr, values)))


def whole(low: int, high: int) -> Rule:
  """The rule that a value is a whole number."""
  return Rule(lambda x: type(x) is int and low <= x <= high, f"a number from {low} to {high:,}")


def rectangle(low: int, high: int) -> Rule:
  """The rule that a value is a size in pixels: a side, or a list of height and width."""
  side = whole(low, high)

  def test(x) -> bool:
    return side.test(x) or (isinstance(x, list) and len(x) == 2 and all(map(side.test, x)))

  return Rule(test, f"{side.words}, or two such numbers")


def number(low: float, high: float) -> Rule:
  """The rule that a value is a number."""
  return Rule(lambda x: type(x) in (int, float) and low <= x <= high, f"from {low} to {high}")


def three(rule: Rule) -> Rule:
  """The rule that a value is a list of three values that each follow `rule`."""

  def test(x) -> bool:
    return isinstance(x, list) and len(x) == 3 and all(map(rule.test, x))

  return Rule(test, f"three numbers, each {rule.words}")


def of_channels(rule: Rule) -> Rule:
  """The rule that a value is a list of values that each follow `rule`, one for each channel."""

  def test(x) -> bool:
    return isinstance(x, list) and 0 < len(x) <= 1024 and all(map(rule.test, x))

  return Rule(test, f"a number for each channel, each {rule.words}")


def or_none(rule: Rule) -> Rule:
  """The rule that a value follows `rule`, or is None."""
  return Rule(lambda x: x is None or rule.test(x), f"{rule.words}, or null")


TEXTS = Rule(
  lambda x: isinstance(x, list) and all(isinstance(text, str) for text in x), "a list of texts"
)


def read_json(path: pathlib.Path) -> dict:
  """Reads a JSON object from a file of bounded size.

  Raises:
    ValueError: the file is too large, or holds something else.
  """
  try:
    return files.read_json(path, most=MAX_BYTES)
  except (ValueError, OSError) as error:
    raise ValueError(f"{path} cannot be read as JSON: {error}.") from error


def checked(values: dict, rules: Rules, path: pathlib.Path) -> dict:
  """The values in the file `path`, with a default for each key that is missing.

  Raises:
    ValueError: they ask for something that this project does not compute; names the keys.
  """
  values = {key: default for key, (_, default) in rules.items()} | values
  messages = [rule.broken(key, values[key]) for key, (rule, _) in rules.items()]
  wrong = list(filter(None, messages))
  if wrong:
    raise ValueError(f"{path} asks for what this project does not compute: {'; '.join(wrong)}.")
  return values


def check_known(values: dict, known: Collection[str], path: pathlib.Path):
  """Checks that the file `path` sets nothing but what is known here; null and false set nothing.

  Raises:
    ValueError: it does; names the keys.
  """
  unknown = sorted(key for key in values if key not in known and values[key] not in (None, False))
  if unknown:
    raise ValueError(f"{path} has {', '.join(unknown)}, which this project does not know.")


LOSSES = ("softmax", "sigmoid")
REPRESENTATIONS = ("pre_logits", "patches")
PIXELS = "RGB, (pixel - 127.5) / 127.5"
OTHER_PIXELS = "(pixel - 127.5) / 127.5"  # of other channels than RGB
DEEP = (
  "Grey images of 16 bits: this project divides their samples by 256. Pillow's convert('RGB'), "
  "which Hugging Face's processors and torchvision's loaders use, clips them at 255, so that "
  "nearly all pixels become white. Divide their samples by 256 first, as uint8."
)


@dataclasses.dataclass(frozen=True)
class Card:
  """The model card of exported weights. Weights in the file NAME have their card in NAME.json.

  Attributes:
    image_size: side of the square images in pixels, or (height, width); 0: unknown.
    resize: size that images are resized to cover, in proportion, before the centre is cut out: of a
      square, by their smaller side; 0: they are resized straight to `image_size`.
    squeeze: whether they become exactly `resize`, whatever their proportions.
    resampling: how pixels are resized, one of `config.data.resampling`.
    position_resizing: how position embeddings are resized, one of `config.position_resizing`.
    class_names: names of the classes as `nfc` gives them, in the order of the logits; (): unknown.
    loss: "softmax", or "sigmoid" if each class has a probability of its own.
    model: what is known of the architecture; AUTO where the parameters tell it, as
      `models.module_of` reads both. The name, which adds nothing, is not written.
    representation: the features that the weights were trained for: "pre_logits", the input of the
      head, or "patches", the mean of the encoder's outputs at the patches.
    trained_on: the datasets that the weights were trained on, as far as they are known.
    average: whether the weights are the moving average of a run's parameters.
    projection: whether the head projects features to a space that an encoder of texts shares, as
      CLIP's does, so that its outputs are no classes.
    guessed: whether nothing describes how images are prepared, so that the card has what the
      library of the weights does by default.
    model_guessed: whether nothing describes how the model computes, so that what parameters do not
      show (`config.model.CONFIG_ONLY_FIELDS`) is what the library's models have by default.
  """

  image_size: Size
  resize: Size = 0
  squeeze: bool = False
  resampling: str = RESAMPLING[0]
  position_resizing: str = POSITION_RESIZING[0]
  class_names: tuple[str, ...] = ()
  loss: str = LOSSES[0]
  model: Model = Model()
  representation: str = REPRESENTATIONS[0]
  trained_on: History = ()
  average: bool = False
  projection: bool = False
  guessed: bool = False
  model_guessed: bool = False

  def __post_init__(self):
    object.__setattr__(self, "class_names", nfc(self.class_names))
    for name in ("image_size", "resize"):  # JSON has lists
      object.__setattr__(self, name, as_size(getattr(self, name)))

  @property
  def channels(self) -> int:
    """The channels of the images."""
    if self.model.channels == AUTO:
      return USUAL["channels"]
    return self.model.channels

  def preparation(self) -> dict:
    """The arguments of `images.evaluate_image` that prepare an image."""
    return dict(
      channels=self.channels,
      size=self.image_size,
      resize=self.resize,
      squeeze=self.squeeze,
      resampling=self.resampling,
    )

  def no_classes(self) -> str:
    """What weights without a classifier have in its place, after "these weights"."""
    if self.projection:
      return "have a projection in place of a head of classes"
    return "have no head"

  def at_size(self, size: Size) -> "Card":
    """The card for images of another size; the same fraction of an image is cut out."""
    resize = self.resize
    if self.image_size:
      resize = scaled(self.resize, size, self.image_size)
    return dataclasses.replace(self, image_size=size, resize=resize)


def preparation_in_words(card: Card) -> str:
  """How an image gets the size `image_size`."""
  if not card.image_size:
    return "resize: straight to the size that you give"
  data = Data(image_size=card.image_size, resampling=card.resampling)
  words = crops.resampling_in_words(data, card.resize, squeeze=card.squeeze)
  if card.resampling == RESAMPLING[0]:
    words += ", bilinear without antialiasing"
  return f"resize: {words}"


_FLAG = Rule(lambda x: isinstance(x, bool), "true or false")
RULES = {
  "pixels": one_of(PIXELS, OTHER_PIXELS),
  "loss": one_of(*LOSSES),
  "representation": one_of(*REPRESENTATIONS),
  "average": _FLAG,
  "projection": _FLAG,
  "guessed": _FLAG,
  "model_guessed": _FLAG,
  "image_size": rectangle(0, MAX_SIDE),
  "resize": rectangle(0, MAX_PIXELS),
  "squeeze": _FLAG,
  "resampling": one_of(*RESAMPLING),
  "position_resizing": one_of(*POSITION_RESIZING),
  "class_names": TEXTS,
}
LATER = ("projection", "guessed", "model_guessed")  # keys that cards of 0.2.0 lack


def path_beside(weights: pathlib.Path) -> pathlib.Path:
  """The path of the card beside a weight file."""
  return weights.parent / f"{weights.name}.json"


def write(path: pathlib.Path, card: Card):
  """Writes a card as JSON."""
  write_text(path, json.dumps(values_of(card), indent=2) + "\n")


def values_of(card: Card) -> dict:
  """The content of a card's JSON."""
  datasets = {"trained_on": opened.history_as_dicts(card.trained_on)}
  plain = dataclasses.asdict(dataclasses.replace(card, trained_on=()))
  architecture = {key: getattr(card.model, key) for key in ARCHITECTURE}
  model = {key: x for key, x in architecture.items() if x != AUTO}
  pixels = PIXELS
  if card.channels != USUAL["channels"]:
    pixels = OTHER_PIXELS
  return plain | datasets | {"model": model, "pixels": pixels, "note": DEEP}


def read_beside(weights: pathlib.Path, params: dict | None = None) -> Card | None:
  """Reads the card of a weight file; None if it has none.

  Raises:
    ValueError: NAME.json is not a card.
  """
  path = path_beside(weights)
  if not path.is_file():
    return None
  return of_values(read_json(path), path)


def of_values(values, path: pathlib.Path) -> Card:
  """The card with the JSON `values` of the file `path`.

  Raises:
    ValueError: it is not a card.
  """
  try:
    values = {key: getattr(Card, key) for key in LATER} | values
    wrong = list(filter(None, [rule.broken(key, values[key]) for key, rule in RULES.items()]))
    resize, own = values["resize"], values["image_size"]
    if not wrong and resize and not covers(as_size(resize), as_size(own)):
      wrong.append(f"resize is {values['resize']}, below its image_size")
    if wrong:
      raise ValueError("; ".join(wrong))
    known = {
      "trained_on": opened.read_history(values["trained_on"]),
      "model": _model_of(values["model"]),
    }
    checked = [field.name for field in dataclasses.fields(Card) if field.name in RULES]
    return Card(**{name: values[name] for name in checked}, **known)
  except (KeyError, TypeError, ValueError) as error:
    raise ValueError(f"{path} is not a model card of exported weights: {error}.") from error


def _model_of(given: dict) -> Model:
  """The architecture in a card.

  Raises:
    ConfigError: a field has a wrong value.
    ValueError: a field does not belong to the architecture.
  """
  model = build(Model(), given, "model")
  for key in given:
    if key not in ARCHITECTURE:
      raise ValueError(f"model.{key} is no part of an architecture")
  return model


def inferred(params: dict) -> Card:
  """Makes a card from parameters alone, with the image size if position embeddings show it."""
  return Card(image_size=module_of(params).size_of(params))


def guessed(params: dict, share: float, usual_size: int = 0, **known) -> Card:
  """Makes a card from parameters, and from what the library of the weights does by default.

  Both the model and the preparation of images are guessed.

  Args:
    params: the parameters.
    share: the fraction of an image's smaller side that the library cuts out.
    usual_size: the size of images, where the parameters do not tell it; 0: unknown.
    **known: other fields of the card.
  """
  size = inferred(params).image_size or usual_size
  resize = as_size([math.floor(side / share) for side in sides(size)])
  return Card(image_size=size, resize=resize, guessed=True, model_guessed=True, **known)


ENOUGH = 0.01  # the largest weight of the initial parameters that needs no warning


def parameters_in_words(average: bool) -> str:
  """Names the parameters that are used."""
  if average:
    return "moving average of the parameters"
  return "parameters"


def initial_share(optimizer: Mapping[str, object], steps: int, total: int) -> float:
  """The weight of the initial parameters in the average.

  Args:
    optimizer: config.optimizer of the run.
    steps: updates so far.
    total: updates of the whole run.
  """
  if optimizer.get("ema_corrected"):
    return 0.0
  first = float(optimizer["ema"])
  end = optimizer.get("end_ema")
  if not end:
    return first**steps
  progress = np.minimum(np.arange(steps) / max(total, 1), 1.0)
  return float(np.prod(end + (first - end) * (1 + np.cos(np.pi * progress)) / 2))


def average_warning(optimizer: Mapping[str, object], steps: int, total: int) -> str:
  """A warning if the initial parameters have too much weight in the average; "" otherwise.

  The arguments are those of `initial_share`.
  """
  share = initial_share(optimizer, steps, total)
  if share <= ENOUGH:
    return ""
  anew = ""
  if not optimizer.get("end_ema"):
    anew = ", or train anew with --config.optimizer.ema_corrected=True"
  return f"{share:.0%} of the moving average is still the initial weights; use --raw-params{anew}."
