"""What must be known beside the parameters: how images are prepared, and the classes' names."""

import dataclasses
import json
import pathlib

from vit_jax.models.gelu import FORMS
from vit_jax.models.norm import EPSILON
from vit_jax.storage.files import write_whole

MAX_BYTES = 64 * 2**20
ACTIVATIONS = tuple(FORMS)
MOST_EPSILON = 1e-2
PIXELS = "RGB, (pixel - 127.5) / 127.5"
DEEP = (
  "Grey images of 16 bits: their samples were divided by 256. Pillow's convert('RGB'), as used by "
  "Hugging Face's processors and torchvision's loaders, clips them at 255, so that nearly all "
  "becomes white: convert such images to 8 bits first."
)


@dataclasses.dataclass(frozen=True)
class Card:
  """Goes with exported weights as NAME.json, for weights in NAME.npz and the like.

  Attributes:
    image_size: side of the square images, pixels; 0 where it is not known.
    resize: 0 where images are resized straight to the square; else the smaller side gets this
      many pixels, and the centre is cut out.
    class_names: names of the classes, in the order of the logits; () where they are not known.
    loss: "softmax", or "sigmoid" where each class has a probability of its own.
    activation, norm_epsilon: of the model, as in config.model; parameters do not tell them.
  """

  image_size: int
  resize: int = 0
  class_names: tuple[str, ...] = ()
  loss: str = "softmax"
  activation: str = ACTIVATIONS[0]
  norm_epsilon: float = EPSILON

  def at_size(self, side: int) -> "Card":
    """The card for images of another size: as large a share of each is cut out."""
    resize = round(self.resize * side / self.image_size) if self.image_size else self.resize
    return dataclasses.replace(self, image_size=side, resize=resize)


def path_beside(weights: pathlib.Path) -> pathlib.Path:
  """Where the card of a file of weights lies."""
  return weights.with_suffix(".json")


def write(path: pathlib.Path, card: Card):
  """Writes a card as JSON."""
  values = dataclasses.asdict(card) | {"pixels": PIXELS, "note": DEEP}
  text = json.dumps(values, indent=2) + "\n"
  write_whole(str(path), lambda partial: pathlib.Path(partial).write_text(text))


def read(path: pathlib.Path) -> Card | None:
  """Reads a card; None where there is none.

  Raises:
    ValueError: the file is not a card.
  """
  if not path.is_file():
    return None
  values = read_json(path)
  try:
    if values["pixels"] != PIXELS:
      raise ValueError(f"its pixels are {values['pixels']!r}; this project computes with {PIXELS}")
    if values["loss"] not in ("softmax", "sigmoid"):
      raise ValueError(f"its loss is {values['loss']!r} and must be softmax or sigmoid")
    activation, epsilon = (
      values.get("activation", ACTIVATIONS[0]),
      values.get("norm_epsilon", EPSILON),
    )
    if activation not in ACTIVATIONS:
      raise ValueError(f"its activation is {activation!r} and must be {' or '.join(ACTIVATIONS)}")
    if not (isinstance(epsilon, float) and 0 < epsilon <= MOST_EPSILON):
      raise ValueError(f"its norm_epsilon is {epsilon!r} and must lie in 0 to {MOST_EPSILON}")
    return Card(
      image_size=int(values["image_size"]),
      resize=int(values["resize"]),
      class_names=tuple(str(name) for name in values["class_names"]),
      loss=values["loss"],
      activation=activation,
      norm_epsilon=epsilon,
    )
  except (KeyError, TypeError, ValueError) as error:
    raise ValueError(f"{path} is not the card of exported weights: {error}.") from error


def read_json(path: pathlib.Path):
  """Parsed JSON of bounded size.

  Raises:
    ValueError: too large, or not JSON.
  """
  size = path.stat().st_size
  if size > MAX_BYTES:
    raise ValueError(f"{path} has {size:,} bytes; the most is {MAX_BYTES:,}.")
  try:
    return json.loads(path.read_text(encoding="utf-8"))
  except (ValueError, RecursionError) as error:
    raise ValueError(f"{path} is not JSON: {error}.") from error
