"""Settings of the data: training data, and how images reach the devices."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, NamedTuple

from vit_jax import registry
from vit_jax.config.fields import (
  AUTO,
  MAX_PIXELS,
  MAX_SIDE,
  Rule,
  Size,
  added,
  as_size,
  group,
  listed_of_kind,
  name_of_kind,
  named,
  setting,
  sides,
)
from vit_jax.config.scales import in_words, patch_of, scale_of
from vit_jax.process.errors import ConfigError
from vit_jax.process.text import shown


@dataclasses.dataclass(frozen=True)
class Dataset:
  """Where examples come from."""

  source: str = setting(
    "",
    f"{', '.join(registry.SOURCES)}: each with its argument after a colon (docs/data.md)",
  )
  split: str = setting(
    "",
    "part of the examples, such as train, train[:90%] or [:90%] (docs/data.md); empty: all, if the "
    "source has no named parts",
  )
  image_key: str = setting("image", "feature that holds the image, where features have names")
  label_key: str = setting(
    "label",
    "feature that holds the label or labels, where features have names; empty, with any source: "
    "images without labels",
  )
  exclude: str = setting(
    "",
    "file with the indices of examples to leave out, written by vit-jax dedup for this source and "
    "split",
  )
  subset: int = setting(
    0,
    "number of examples, drawn at random after `exclude`, whatever the seed of the run; a larger "
    "subset contains every smaller one; 0: all",
    low=0,
    high=10**12,
  )


FILTERS = ("nearest", "box", "bilinear", "hamming", "bicubic", "lanczos")  # of Pillow
RESAMPLING = (
  "bilinear",
  *(f"{library}_{name}" for library in ("pillow", "torchvision") for name in FILTERS),
)

# Training images are cropped at random, unless they are resized.
CROPPED = (("data.train_pad", 0), ("data.train_resize", 0), ("data.train_resize_ratio", 0.0))

INCEPTION = (0.05, 1.0)  # smallest and largest part of the area of the paper's crops
CROPPED_BEFORE = (0.5, 1.0)  # for weights whose images keep their proportions and are cropped
RESIZE_RATIO = 448 / 384  # of fine-tuning, Section 4.1
# The settings that decide which sizes of images a model takes.
TILING = ("model.patch", "model.stem_width", "model.stages")
SIDE = 224  # pixels, the usual size, and the most that is chosen for images from scratch


def size_of(init_from, patch, stem_width, stages, card, side, largest_side) -> tuple[Size, str]:
  """The size of the weights; from scratch, that of the images, as the patches tile it."""
  del patch, stem_width, stages  # they decide what `largest_side` gives
  known = card()
  if known and known.image_size:
    return known.image_size, init_from or "the weights"
  if known:
    return SIDE, "usual; the weights do not tell it"
  most = min(SIDE, max(side(), 16))
  return largest_side()(most), f"images of about {side()} pixels, and the patches"


def area_of_crops(init_from, resize, pad, card, images) -> tuple[tuple[float, float], str]:
  """Larger crops for weights that expect cropped images; from scratch, by the number of images."""
  if resize or pad:
    return INCEPTION, ""  # images are not cropped by their area
  known = card()
  if known and known.resize:
    return CROPPED_BEFORE, init_from
  if known:
    return INCEPTION, ""
  return (scale_of(images()).crop, 1.0), in_words(images())


def whether_to_flip(init_from, side) -> tuple[bool, str]:
  """Photographs are flipped; small pictures may be of signs."""
  if init_from:
    return True, ""
  if patch_of(side()) == 16:
    return True, "photographs"
  return False, "small pictures may be of signs"


def ratio_of_resizing(resize, pad, crop_area, card) -> tuple[float, str]:
  """For fine-tuning, images a sixth larger than the crops, unless the weights expect crops."""
  if resize or pad or crop_area != AUTO:
    return 0.0, ""
  known = card()
  if known is None or known.resize:
    return 0.0, ""
  return RESIZE_RATIO, ""


def resized_for_scoring(init_from, size, card) -> tuple[Size, str]:
  """The resizing of the weights, in proportion to the size; otherwise straight to the square."""
  known = card()
  if known and known.resize:
    return known.at_size(size).resize, init_from
  return 0, ""


def squeezed(asked, resize, card) -> tuple[bool, str]:
  """As for the weights, if `evaluate_resize` comes from them too."""
  of_weights = asked == AUTO and resize and card()
  return bool(of_weights and of_weights.squeeze), ""


def resampled_as(init_from, card) -> tuple[str, str]:
  """The resampling of the weights; otherwise that of the paper's code."""
  known = card()
  if known and known.resampling != RESAMPLING[0]:
    return known.resampling, init_from
  return RESAMPLING[0], ""


@dataclasses.dataclass(frozen=True)
class Weighted(Dataset):
  """A source of the training mix; one with an empty source is left out."""

  weight: float = setting(
    1.0,
    "the share of the training images is this weight divided by the sum of all",
    low=1e-6,
    high=1e12,
  )


@dataclasses.dataclass(frozen=True)
class Augmentation:
  """A step that changes training images; `vit_jax/data/augmentation/` has a file for each kind."""

  kind: str = name_of_kind("", "what is done to an image")

  moves_pixels: ClassVar[bool] = True  # then values of single pixels cannot follow

  def draw(self, rng, size: Size) -> Sequence[Callable]:
    """Draws what is done to one image.

    Args:
      rng: a `numpy.random.Generator`, set to the seed of the run and the image's position in it.
      size: of the image, pixels: the side of a square, or (height, width).

    Returns:
      Functions of pixels, (H, W, 3) uint8 RGB to the same, to apply one after the other: named
      functions, or `functools.partial` of them with what was drawn as keywords, from which the
      pictures of operations take their captions. They must not draw anything, nor write to the
      pixels that they are given.
    """
    raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class Data(*added("data")):
  """Training data, and how images are prepared and loaded."""

  dataset: str = setting(
    "",
    "the paper's dataset that the recipe is for; gives the number of training images where only "
    "the cost of a run is computed",
    choices=("", "jft", "imagenet21k", "imagenet"),
  )
  train: Dataset = group(Dataset)
  mix: Mapping[str, Weighted] = named(
    Weighted,
    "several sources with weights, in place of `train`; an epoch is as many images as all have "
    "together",
  )
  changed: str = setting(
    "refuse",
    "whether a run goes on if its images are no longer those of its checkpoint: `refuse`, or "
    "`continue` with those that are there",
    choices=("refuse", "continue"),
  )
  allow_overlap: bool = setting(
    False, "allow evaluation on images that are also trained on, otherwise refused"
  )
  image_size: Size = setting(
    AUTO,
    "side of the square images, or (height, width) of others, also as 224x256; pixels",
    auto=Rule(
      ("init_from", *TILING, "facts.card", "facts.side", "facts.largest_side"),
      "the weights; from scratch, the size of the images and of the patches",
      size_of,
    ),
    low=1,
    high=MAX_SIDE,
  )
  crop_area: tuple = setting(
    AUTO,
    "smallest and largest fraction of the image's area in a training crop",
    auto=Rule(
      ("init_from", "data.train_resize", "data.train_pad", "facts.card", "facts.images"),
      "the weights; from scratch, the number of training images",
      area_of_crops,
    ),
    usual=INCEPTION,
    used_if=CROPPED,
  )
  crop_aspect: tuple = setting(
    (3 / 4, 4 / 3), "smallest and largest width / height of the crop", used_if=CROPPED
  )
  crop_rule: str = setting(
    "inception",
    "how a crop is drawn: `inception`, by a uniform aspect and height, as in the paper's code; "
    "`random_resized`, by a uniform area and logarithm of the aspect, as in torchvision; small "
    "crops are then rarer",
    choices=("inception", "random_resized"),
    used_if=CROPPED,
  )
  train_resize: Size = setting(
    0,
    "side of the square, or (height, width), pixels, to which whole training images are resized "
    "before a random crop of image_size; 0: crops as above",
    low=0,
    high=MAX_PIXELS,
  )
  train_resize_ratio: float = setting(
    AUTO,
    "train_resize as a multiple of image_size; 0: not used",
    auto=Rule(
      ("data.train_resize", "data.train_pad", "asked.data.crop_area", "facts.card"),
      "448/384 for fine-tuning, unless crops are given or the weights' images are cropped; else 0",
      ratio_of_resizing,
    ),
    low=1.0,
    high=MAX_PIXELS / MAX_SIDE,
    off=0.0,
    used_if=(("data.train_resize", 0),),
  )
  train_pad: int = setting(
    0,
    "pixels to mirror at each edge of training images, resized until they cover image_size, "
    "before a random crop of image_size (DeiT III: 4); 0: not used",
    low=0,
    high=MAX_SIDE,
    used_if=(("data.train_resize", 0), ("data.train_resize_ratio", 0.0)),
  )
  flip: bool = setting(
    AUTO,
    "flip half of the training images left to right",
    auto=Rule(
      ("init_from", "facts.side"),
      "from scratch, the size of the images: small pictures may be of signs",
      whether_to_flip,
    ),
  )
  augment: tuple = listed_of_kind(
    registry.AUGMENTATIONS,
    "steps after crop and flip, in this order (docs/augmentation.md); on the command line the "
    "whole list, such as \"[{'kind': 'rand_augment', 'magnitude': 15}]\"",
  )
  evaluate_resize: Size = setting(
    AUTO,
    "smaller side of evaluation images, pixels, before the centre is cropped; with (height, width) "
    "images are resized until they cover both; 0: resized straight to image_size",
    auto=Rule(
      ("init_from", "data.image_size", "facts.card"),
      "the weights, in proportion to image_size; from scratch 0",
      resized_for_scoring,
    ),
    low=0,
    high=MAX_PIXELS,
  )
  evaluate_squeeze: bool = setting(
    AUTO,
    "resize both sides of evaluation images to evaluate_resize, whatever their proportions",
    auto=Rule(
      ("asked.data.evaluate_resize", "data.evaluate_resize", "facts.card"),
      "the weights, where evaluate_resize follows from them too; else false",
      squeezed,
    ),
    used_if=(("data.evaluate_resize",),),
  )
  resampling: str = setting(
    AUTO,
    "how images are resized: bilinear, as in the paper's code, or by a filter of Pillow, rounded "
    "as in Transformers (pillow_) or in torchvision and timm (torchvision_)",
    auto=Rule(
      ("init_from", "facts.card"),
      "the weights; from scratch bilinear",
      resampled_as,
      stays="always",
    ),
    choices=RESAMPLING,
  )
  repeats: int = setting(
    1,
    "times that each training image comes in a batch, augmented differently (repeated "
    "augmentation, DeiT: 3); a pass over all images takes this many epochs",
    low=1,
    high=64,
  )
  class_balanced: bool = setting(
    False,
    "draw every class equally often, each time another of its images until all were drawn; of a "
    "mix, within each source. An epoch is still as many images as there are. Each image must have "
    "one label",
  )
  max_pixels: int = setting(
    2**26, "images with more pixels are refused as decompression bombs", low=1, high=2**30
  )
  bad_limit: float = setting(
    0.01,
    "the run stops when more than this fraction of the images taken so far and in one more pass "
    "(at most 1,000 more; of 1,000 in all, if fewer) cannot be read, or most of the last 32 images "
    "(of the batch, if it has more) and more than this fraction of them",
    low=0.0,
    high=1.0,
  )
  bucket_cache: float = setting(
    0.0,
    "GB of disk for what is read from buckets, in ~/.cache/vit_jax/buckets; the least recently "
    "used goes first, so all images of the run should fit; 0: nothing is kept",
    low=1.0,
    high=1e6,
    off=0.0,
  )
  threads: int = setting(16, "decoding threads per process", low=1, high=1024)
  ahead: int = setting(2, "batches copied to the devices in advance", low=1, high=64)

  def resized_before(self) -> Size:
    """The size to which training images are resized before a random crop, pixels.

    0: the crops are of `crop_area`, or of padded images.
    """
    if self.train_resize:
      return self.train_resize
    return as_size([round(self.train_resize_ratio * side) for side in sides(self.image_size)])

  def cropped(self, image_size: Size, area: tuple[float, float]) -> "Data":
    """The same settings, with crops of this size that have these fractions of the image's area."""
    uncropped = dict(train_resize=0, train_resize_ratio=0.0, train_pad=0)
    return dataclasses.replace(self, image_size=image_size, crop_area=area, **uncropped)

  def resampled(self) -> str:
    """How images are resized; bilinear as long as no weights say otherwise."""
    if self.resampling == AUTO:
      return RESAMPLING[0]
    return self.resampling

  def mixed(self) -> dict[str, Weighted]:
    """The sources of the mix by name, in the order of their names; {} if there is no mix."""
    return {name: item for name, item in sorted(self.mix.items()) if item.source}

  def training(self) -> dict[str, Dataset]:
    """All datasets to train on, by the name of their setting."""
    mix = {f"config.data.mix.{name}": item for name, item in self.mixed().items()}
    return mix or {"config.data.train": self.train}


AREAS = 1e-4, 1.0  # bounds of a crop's fraction of the image's area


def check_range(key: str, pair: Sequence, low: float, high: float):
  """Checks that the setting `key` is (least, largest), both from `low` to `high`.

  Raises:
    ConfigError: it is not.
  """
  numbers = [x for x in pair if isinstance(x, (int, float)) and not isinstance(x, bool)]
  if len(pair) != 2 or len(numbers) != 2 or not low <= pair[0] <= pair[1] <= high:
    raise ConfigError(
      f"{key}={shown(pair)} is not (least, largest) with {low:g} <= least <= largest <= {high:g}."
    )


class View(NamedTuple):
  """An image of a training batch, as an objective asks for it.

  Attributes:
    data: config.data, perhaps with another size and other crops (`Data.cropped`).
    count: how many of them an example has, each with draws of its own; 0: one, without an axis for
      them in the batch.
  """

  data: Data
  count: int = 0
