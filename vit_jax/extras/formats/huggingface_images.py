"""How images are prepared for a Hugging Face model: the file of its image processor."""

import math
import pathlib
from typing import NamedTuple

from vit_jax.config import MAX_PIXELS
from vit_jax.data.crops import filter_of
from vit_jax.weights import card
from vit_jax.weights.card import Card, Rule, number, of_channels, one_of, whole

FILE = "preprocessor_config.json"
OF_SEVERAL = "processor_config.json"  # Transformers 5 puts the same there, as "image_processor"
FILTERS = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}
# Mean and standard deviation of each channel.
IMAGENET = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
_HALF = ([0.5] * 3, [0.5] * 3)
CLIP_COLOURS = ([0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711])
# Defaults of Transformers' processors, by the first word of their names: size, whether a number is
# the side of a square, filter, whether to crop the centre, mean and standard deviation.
_USUAL = {
  "ViT": ({"height": 224, "width": 224}, True, 2, False, _HALF),
  "DeiT": ({"height": 256, "width": 256}, True, 3, True, _HALF),
  "Bit": ({"shortest_edge": 224}, False, 3, True, CLIP_COLOURS),
  "CLIP": ({"shortest_edge": 224}, False, 3, True, CLIP_COLOURS),
  "Siglip": ({"height": 224, "width": 224}, False, 3, False, _HALF),
  "Beit": ({"height": 224, "width": 224}, True, 3, False, _HALF),
  "DINOv3ViT": ({"height": 224, "width": 224}, True, 2, False, IMAGENET),
}
_SIDE = 224  # of the images in these defaults
_ENDINGS = ("ImageProcessor", "ImageProcessorFast", "ImageProcessorPil", "FeatureExtractor")
_KINDS = {f"{kind}{ending}": kind for kind in _USUAL for ending in _ENDINGS}
# Keys that do not change pixels: the name of the processor, and the form of arrays.
_IGNORED = {
  *("image_processor_type", "feature_extractor_type", "processor_class", "_processor_class"),
  *("transformers_version", "_name_or_path", "_valid_processor_keys"),
  *("return_tensors", "data_format", "input_data_format", "device", "disable_grouping"),
  "do_convert_rgb",  # all images are converted to RGB here
}


class Prepared(NamedTuple):
  """How images are prepared.

  Attributes:
    mean, deviation: subtracted from pixels in [0, 1], and then divided by.
    size, resize, squeeze, resampling: as in `images.evaluate_image`.
  """

  mean: list[float]
  deviation: list[float]
  size: int
  resize: int
  squeeze: bool
  resampling: str


def read_processor(folder: pathlib.Path, kind: str) -> Prepared | None:
  """How the file in a model's folder prepares images; None if there is none.

  Args:
    folder: the model's folder.
    kind: the kind of processor, a key of `_USUAL`, if the file does not name one.

  Raises:
    ValueError: this project cannot prepare images so.
  """
  values, path = values_in(folder)
  if values is None:
    return None
  table = _rules(_kind(values, path) or kind)
  card.check_known(values, table.keys() | _IGNORED, path)
  given = {key: value for key, value in values.items() if value is not None}  # null: the default
  return _prepared(card.checked(given, table, path), path)


def values_in(folder: pathlib.Path) -> tuple[dict | None, pathlib.Path]:
  """The settings of the processor, which the library looks for in two files; and the file.

  Raises:
    ValueError: a file cannot be read, or does not hold them.
  """
  path = folder / OF_SEVERAL
  if path.is_file():
    values = card.read_json(path).get("image_processor")
    if not isinstance(values, dict | None):
      raise ValueError(f"{path} does not say how images are prepared (image_processor).")
    if values is not None:
      return values, path
  path = folder / FILE
  return card.read_json(path) if path.is_file() else None, path


def usual(kind: str, side: int) -> Prepared:
  """How a processor prepares images of another size by default; the share that is cut out stays.

  Args:
    kind: a key of `_USUAL`.
    side: of the model's images, pixels.
  """
  size, _, resample, crops, (mean, deviation) = _USUAL[kind]
  resize = 0
  if crops:
    resize = round(next(iter(size.values())) * side / _SIDE)
  squeeze = bool(resize) and "height" in size
  return Prepared(mean, deviation, side, resize, squeeze, f"pillow_{FILTERS[resample]}")


def written(card: Card, channels: int) -> dict:
  """The contents of the file for a model of this project, for images of these channels."""
  square = _square(card.image_size)
  processor = "ViTImageProcessor"
  sizes = {"size": square}
  if card.resize:
    processor = "BitImageProcessor"
    resized = _square(card.resize) if card.squeeze else {"shortest_edge": card.resize}
    sizes = {"size": resized, "do_center_crop": True, "crop_size": square}
  numbers = {name: number for number, name in FILTERS.items()}
  half = [0.5] * channels
  return {
    "image_processor_type": processor,
    "do_convert_rgb": channels == 3,
    "do_resize": True,
    **sizes,
    "resample": numbers[_filter(card.resampling)],
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "image_mean": half,
    "image_std": half,
  }


def resampling_of(prepared: Prepared, recorded: str) -> str:
  """The resampling that an export of ours recorded if it has the file's filter; else the file's."""
  if recorded and _filter(recorded) == _filter(prepared.resampling):
    return recorded
  return prepared.resampling


def _filter(resampling: str) -> str:
  return filter_of(resampling) or "bilinear"


def _kind(values: dict, path: pathlib.Path) -> str:
  name = values.get("image_processor_type") or values.get("feature_extractor_type")
  if name is None:
    return ""
  if not isinstance(name, str) or name not in _KINDS:
    raise ValueError(
      f"{path} is of a {name!r:.60}; known are the processors of {', '.join(_USUAL)}."
    )
  return _KINDS[name]


def _rules(kind: str) -> card.Rules:
  size, square, resample, crops, (mean, deviation) = _USUAL[kind]
  flag = one_of(True, False)
  return {
    "do_resize": (one_of(True), True),
    "size": (_IS_SIZE, size),
    "default_to_square": (flag, square),
    "resample": (Rule(lambda x: type(x) is int and x in FILTERS, "from 0 to 5"), resample),
    "do_center_crop": (flag, crops),
    "crop_size": (_IS_SIZE, _SIDE),
    "do_rescale": (flag, True),
    "rescale_factor": (number(1e-6, 1000), 1 / 255),
    "do_normalize": (flag, True),
    "image_mean": (_colours(number(-1000, 1000)), mean),
    "image_std": (_colours(number(1e-6, 1000)), deviation),
    "do_pad": (one_of(False), False),
    "do_flip_channel_order": (one_of(False), False),
  }


def _colours(rule: Rule) -> Rule:
  """Numbers that fit a rule, one for each channel, or one number for all channels."""
  each = of_channels(rule)
  return Rule(lambda x: each.test(x) or rule.test(x), f"{each.words}, or a number {rule.words}")


def _prepared(values: dict, path: pathlib.Path) -> Prepared:
  size, resize, squeeze = _sizes(values, path)
  factor = 255  # the processor's pixels are in [0, factor]
  if values["do_rescale"]:
    factor = 255 * values["rescale_factor"]
  if math.isclose(factor, 1, rel_tol=1e-6):
    factor = 1
  mean = 0
  deviation = 1
  if values["do_normalize"]:
    mean = values["image_mean"]
    deviation = values["image_std"]
  return Prepared(
    [x / factor for x in _of_channels(mean)],
    [x / factor for x in _of_channels(deviation)],
    size,
    resize,
    squeeze,
    f"pillow_{FILTERS[values['resample']]}",
  )


def _of_channels(value) -> list[float]:
  """A number for each channel, or one for all of them."""
  if isinstance(value, list):
    return value
  return [value]


def _sizes(values: dict, path: pathlib.Path) -> tuple[int, int, bool]:
  """`size`, `resize` and `squeeze` of `images.evaluate_image`.

  Raises:
    ValueError: images do not become squares of the same size.
  """
  size = _sides(values["size"], square=values["default_to_square"])
  resize = size.get("height", size.get("shortest_edge"))
  squeeze = "height" in size
  if size not in (_square(resize), {"shortest_edge": resize}):
    raise _refused(path, f"size is {size}, no square and no shortest_edge")
  if not values["do_center_crop"]:
    if not squeeze:
      raise _refused(path, f"size is {size}, and no square is cut out (do_center_crop)")
    return resize, 0, False
  crop = _sides(values["crop_size"], square=True)
  side = crop.get("height")
  if crop != _square(side) or side > resize:
    raise _refused(path, f"crop_size is {crop}, no square inside the size {size}")
  if squeeze and side == resize:
    return side, 0, False
  return side, resize, squeeze


def _sides(value, *, square: bool) -> dict:
  """A size in the form of new files; in old files a number is the side of a square or an edge."""
  if not isinstance(value, int):
    return {key: length for key, length in value.items() if length is not None}
  return _square(value) if square else {"shortest_edge": value}


def _square(side: int) -> dict:
  return {"height": side, "width": side}


def _refused(path: pathlib.Path, what: str) -> ValueError:
  return ValueError(f"{path} asks for what this project does not compute: {what}.")


def _is_size(value) -> bool:
  if isinstance(value, dict):
    return all(length is None or _LENGTH.test(length) for length in value.values())
  return _LENGTH.test(value)


_LENGTH = whole(1, MAX_PIXELS)
_IS_SIZE = Rule(_is_size, "a number of pixels, or a height and a width")
