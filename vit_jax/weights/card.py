"""The model card: what a user of parameters must know, such as image size and class names."""

import dataclasses
import json
import pathlib

from vit_jax.config import MAX_PIXELS, MAX_SIDE
from vit_jax.data import history
from vit_jax.data.history import History
from vit_jax.models.gelu import FORMS
from vit_jax.models.norm import EPSILON
from vit_jax.models.recognition import module_of, patch_grid
from vit_jax.process.text import nfc
from vit_jax.storage.files import write_text

MAX_BYTES = 64 * 2**20
ACTIVATIONS = tuple(FORMS)
MAX_EPSILON = 1e-2
REPRESENTATIONS = ("pre_logits", "patches")
PIXELS = "RGB, (pixel - 127.5) / 127.5"
DEEP = (
  "Grey images of 16 bits: this project divides their samples by 256. Pillow's convert('RGB'), "
  "which Hugging Face's processors and torchvision's loaders use, clips them at 255, so that "
  "nearly all pixels become white. Convert such images to 8 bits first."
)


@dataclasses.dataclass(frozen=True)
class Card:
  """The model card of exported weights. Weights in NAME.npz have their card in NAME.json.

  Attributes:
    image_size: side of the square images in pixels; 0: unknown.
    resize: pixels of the smaller side before the centre is cut out; 0: images are resized straight
      to the square.
    class_names: names of the classes as `nfc` gives them, in the order of the logits; (): unknown.
    loss: "softmax", or "sigmoid" if each class has a probability of its own.
    activation, norm_epsilon: as in config.model; the parameters do not show them.
    representation: what the weights were trained to represent images by: "pre_logits", the input
      of the head, or "patches", the mean of the encoder's outputs at the patches.
    trained_on: the datasets that the weights were trained on, as far as they are known.
    average: whether the weights are the moving average of a run's parameters.
  """

  image_size: int
  resize: int = 0
  class_names: tuple[str, ...] = ()
  loss: str = "softmax"
  activation: str = ACTIVATIONS[0]
  norm_epsilon: float = EPSILON
  representation: str = REPRESENTATIONS[0]
  trained_on: History = ()
  average: bool = False

  def __post_init__(self):
    object.__setattr__(self, "class_names", nfc(self.class_names))

  def at_size(self, side: int) -> "Card":
    """The card for images of another size; the part of an image that is cut out stays the same."""
    resize = round(self.resize * side / self.image_size) if self.image_size else self.resize
    return dataclasses.replace(self, image_size=side, resize=resize)


def path_beside(weights: pathlib.Path) -> pathlib.Path:
  """The path of the card of a file of weights."""
  return weights.with_suffix(".json")


def write(path: pathlib.Path, card: Card):
  """Writes a card as JSON."""
  write_text(path, json.dumps(values_of(card), indent=2) + "\n")


def values_of(card: Card) -> dict:
  """What the JSON of a card says."""
  own = {"trained_on": history.written(card.trained_on), "pixels": PIXELS, "note": DEEP}
  return dataclasses.asdict(dataclasses.replace(card, trained_on=())) | own


def read(path: pathlib.Path) -> Card | None:
  """Reads a card; None if there is no such file.

  Raises:
    ValueError: the file is not a card.
  """
  return of_values(read_json(path), path) if path.is_file() else None


def of_values(values, path: pathlib.Path) -> Card:
  """The card that JSON in the file `path` says.

  Raises:
    ValueError: it is not a card.
  """
  try:
    if values["pixels"] != PIXELS:
      raise ValueError(f"its pixels are {values['pixels']!r} and must be {PIXELS!r}")
    if values["loss"] not in ("softmax", "sigmoid"):
      raise ValueError(f"its loss is {values['loss']!r} and must be softmax or sigmoid")
    activation, epsilon = (
      values.get("activation", ACTIVATIONS[0]),
      values.get("norm_epsilon", EPSILON),
    )
    if activation not in ACTIVATIONS:
      raise ValueError(f"its activation is {activation!r} and must be {' or '.join(ACTIVATIONS)}")
    if not (isinstance(epsilon, float) and 0 < epsilon <= MAX_EPSILON):
      raise ValueError(f"its norm_epsilon is {epsilon!r} and must be above 0, up to {MAX_EPSILON}")
    representation = values.get("representation", REPRESENTATIONS[0])
    if representation not in REPRESENTATIONS:
      wanted = " or ".join(REPRESENTATIONS)
      raise ValueError(f"its representation is {representation!r} and must be {wanted}")
    average = values.get("average", False)
    if not isinstance(average, bool):
      raise ValueError(f"its average is {average!r} and must be true or false")
    side, resize, names = values["image_size"], values["resize"], values["class_names"]
    if type(side) is not int or not 0 <= side <= MAX_SIDE:
      raise ValueError(f"its image_size is {side!r} and must be a number from 0 to {MAX_SIDE:,}")
    if type(resize) is not int or not (resize == 0 or side <= resize <= MAX_PIXELS):
      wanted = f"0, or a number from its image_size {side} to {MAX_PIXELS:,}"
      raise ValueError(f"its resize is {resize!r} and must be {wanted}")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
      raise ValueError("its class_names are not a list of texts")
    return Card(
      image_size=side,
      resize=resize,
      class_names=tuple(names),
      loss=values["loss"],
      activation=activation,
      norm_epsilon=epsilon,
      representation=representation,
      trained_on=history.read(values.get("trained_on", [])),
      average=average,
    )
  except (KeyError, TypeError, ValueError) as error:
    raise ValueError(f"{path} is not a model card of exported weights: {error}.") from error


def read_json(path: pathlib.Path):
  """Reads JSON from a file of bounded size.

  Raises:
    ValueError: the file is too large, or not JSON.
  """
  size = path.stat().st_size
  if size > MAX_BYTES:
    raise ValueError(f"{path} has {size:,} bytes; the most is {MAX_BYTES:,}.")
  try:
    return json.loads(path.read_text(encoding="utf-8"))
  except (ValueError, RecursionError) as error:
    raise ValueError(f"{path} is not JSON: {error}.") from error


def inferred(params: dict) -> Card:
  """Makes a card from parameters alone: the image size, if position embeddings tell it."""
  told = module_of(params)
  if "resnet" in params:
    return Card(image_size=0)
  grid = patch_grid(params, told.pool == "class_token")
  return Card(image_size=grid[0] * told.stride() if grid and grid[0] == grid[1] else 0)
