"""How images are prepared for a model of Hugging Face: its preprocessor_config.json."""

import logging
import pathlib
from typing import NamedTuple

from vit_jax.config import MAX_SIDE
from vit_jax.weights import pixels, rules
from vit_jax.weights.rules import Rule, one_of, or_none, three, whole

FILE = "preprocessor_config.json"
SQUARES, CROPS = "ViT", ("Bit", "DeiT")  # processors by the first word of their names
_ENDINGS = ("ImageProcessor", "ImageProcessorFast", "ImageProcessorPil", "FeatureExtractor")
_NAMES = tuple(f"{kind}{ending}" for kind in (SQUARES, *CROPS) for ending in _ENDINGS)
_RESAMPLING = {2: "bilinear", 3: "bicubic"}  # Pillow's numbers
_log = logging.getLogger(__name__)


class Prepared(NamedTuple):
  """What images become.

  Attributes:
    mean, deviation: that are subtracted and divided by, of pixels from 0 to 1.
    resize: as that of a `Card`.
  """

  mean: list[float] = [0.5] * 3
  deviation: list[float] = [0.5] * 3
  resize: int = 0


def read(folder: pathlib.Path, side: int) -> Prepared:
  """What the file in a folder says, or what is usual without one.

  Args:
    folder: of the model.
    side: of the model's images, pixels.

  Raises:
    ValueError: images are prepared in a way that this project does not know.
  """
  path = folder / FILE
  if not path.is_file():
    return Prepared()
  values = rules.read_json(path)
  name = values.get("image_processor_type") or values.get("feature_extractor_type") or SQUARES
  crops = str(name).startswith(CROPS)
  values = rules.checked(values, _CROPPED if crops else _SQUARE, path)
  return Prepared(values["image_mean"], values["image_std"], _resize(values, side, path))


def warn(folder: pathlib.Path):
  """Says in what else than bounds Hugging Face prepares images otherwise than this project."""
  values = rules.read_json(folder / FILE) if (folder / FILE).is_file() else {}
  pixels.warn_of_resizing("Hugging Face", _RESAMPLING[values.get("resample", 2)])
  if values.get("do_center_crop") and "shortest_edge" not in _size(values.get("size")):
    _log.warning(
      "Hugging Face squeezes images for it to a square and cuts out its centre; this project keeps "
      "their proportions, as the authors of DeiT do."
    )


def written(side: int, resize: int) -> dict:
  """The contents of the file for a model of this project; `resize` as that of a `Card`."""
  square = {"height": side, "width": side}
  cropped = {"size": {"shortest_edge": resize}, "do_center_crop": True, "crop_size": square}
  return {
    "image_processor_type": "BitImageProcessor" if resize else "ViTImageProcessor",
    "do_convert_rgb": True,
    "do_resize": True,
    **(cropped if resize else {"size": square}),
    "resample": 2,
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "image_mean": [0.5] * 3,
    "image_std": [0.5] * 3,
  }


def _size(value) -> dict:
  """A size as old and new files write it, in the new form."""
  return {"height": value, "width": value} if isinstance(value, int) else value or {}


def _resize(values: dict, side: int, path: pathlib.Path) -> int:
  square, size = {"height": side, "width": side}, _size(values["size"])
  if not values["do_center_crop"]:
    wrong = Rule(lambda x: x == square, f"{square}, the size of the model").broken("size", size)
    resize = 0
  else:
    wrong = one_of(square).broken("crop_size", _size(values["crop_size"]))
    resize = size.get("shortest_edge", size.get("height"))
    wrong = wrong or whole(side, MAX_SIDE).broken("size", resize)
  if wrong:
    raise ValueError(f"{path} asks for what this project does not compute: {wrong}.")
  return resize


_IS_SIZE = Rule(
  lambda x: type(x) is int or (isinstance(x, dict) and all(type(n) is int for n in x.values())),
  "a number of pixels, or a height and a width",
)
_SQUARE = {
  "do_convert_rgb": (one_of(True, False, None), None),
  "image_processor_type": (one_of(*_NAMES, None), None),
  "feature_extractor_type": (one_of(*_NAMES, None), None),
  "do_resize": (one_of(True), True),
  "size": (_IS_SIZE, 224),
  "resample": (one_of(*_RESAMPLING), 2),
  "do_center_crop": (one_of(False, None), None),
  "do_pad": (one_of(False, None), None),
  "do_rescale": (one_of(True), True),
  "rescale_factor": (one_of(1 / 255), 1 / 255),
  "do_normalize": (one_of(True), True),
  "image_mean": (three(rules.number(-10, 10)), [0.5] * 3),
  "image_std": (three(rules.number(0.001, 1000)), [0.5] * 3),
}
_CROPPED = _SQUARE | {
  "do_center_crop": (one_of(True, False), True),
  "crop_size": (or_none(_IS_SIZE), 224),
}
