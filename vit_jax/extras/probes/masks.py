"""Images with a mask each, whose values are the classes of pixels.

The folder has images/NAME.jpg (or another format, also in inner folders) and masks/NAME.png; or
train and val, each with these two. A mask is a PNG of 8 bits with indices, grey or with a palette,
of its image's size. Its value is the class; 255 is not scored.
"""

import io
from typing import NamedTuple

import numpy as np
from PIL import Image

from vit_jax.config import ConfigError, Data, Dataset
from vit_jax.data import datasets, pillow
from vit_jax.data import images as pictures
from vit_jax.data.datasets import History, NamedDataset
from vit_jax.data.images import BadImage
from vit_jax.extras.probes.parts import overlap
from vit_jax.inference.predict import MAX_PIXELS
from vit_jax.process.progress import NoProgress, Progress
from vit_jax.storage import files, paths
from vit_jax.storage.paths import Path, path_of

IMAGES = "images"
MASKS = "masks"
TEST = ("val", "test")
IGNORED = 255
MAX_BYTES = 2**28
MODES = ("L", "P")


class MaskedParts(NamedTuple):
  """The images of a segmentation probe.

  Attributes:
    train, test: the images, without labels.
    masks, test_masks: for each image a mask (H, W) uint8.
    classes: one more than the largest value of a training mask.
    words: how the two parts were found.
    overlap: the test images that the weights were trained on, as `parts.overlap`.
  """

  train: NamedDataset
  test: NamedDataset
  masks: list[np.ndarray]
  test_masks: list[np.ndarray]
  classes: int
  words: str
  overlap: str


def open_masked(
  folder: str,
  trained_on: History,
  progress: Progress | NoProgress,
  *,
  allow_overlap: bool = False,
) -> MaskedParts:
  """Opens the parts train and val (or test); without parts, a random tenth is scored.

  Args:
    folder: as above.
    trained_on, progress, allow_overlap: as for `parts.open_parts`.

  Raises:
    ConfigError: a folder, an image or a mask is missing, they do not fit together, or test images
      are trained on.
    OSError: a file cannot be read.
  """
  root = path_of(paths.absolute(folder))  # as `Folder` names its images
  train, test, words = parts_of(root)
  opener = datasets.opener_of(Data(), progress)
  train = opener.open("The training images", train)
  test = opener.open("The test images", test)
  common = overlap(train, test, opener.earlier(trained_on, [train]), allow=allow_overlap)
  masks = masks_of(train)
  test_masks = masks_of(test)
  values = values_of(masks)
  if len(values) < 2:
    ignored = any((mask == IGNORED).any() for mask in masks)
    advice = f" Their value {IGNORED} is not scored; write a foreground as 1." if ignored else ""
    raise ConfigError(f"The training masks of {folder} have one class; a probe needs two.{advice}")
  if more := values_of(test_masks) - values:
    raise ConfigError(
      f"Test masks of {folder} have the classes {sorted(more)}, which no training mask has; "
      f"make them {IGNORED}, or add training images."
    )
  return MaskedParts(train, test, masks, test_masks, max(values) + 1, words, common)


def values_of(masks: list[np.ndarray]) -> set[int]:
  """The classes that occur."""
  return {value for mask in masks for value in np.unique(mask).tolist()} - {IGNORED}


def parts_of(root: Path) -> tuple[Dataset, Dataset, str]:
  """The training and the test images, and how they were found."""
  there = [name for name in TEST if files.is_folder(root / name / IMAGES)]
  if there and files.is_folder(root / "train" / IMAGES):
    train = unlabelled(root / "train")
    return train, unlabelled(root / there[0]), f"the folders train and {there[0]}"
  if not files.is_folder(root / IMAGES):
    raise ConfigError(
      f"{root} has neither the folders {IMAGES} and {MASKS}, nor train and val with these; put "
      f"each image into {IMAGES}, and its mask, NAME.png, into {MASKS}."
    )
  train = unlabelled(root, "[:90%]")
  return train, unlabelled(root, "[90%:]"), "a random tenth is scored, and not trained on"


def unlabelled(folder: Path, split: str = "") -> Dataset:
  """The images in a folder, as a source without labels."""
  return Dataset(source=f"folder:{folder / IMAGES}", split=split, label_key="")


def masks_of(named: NamedDataset) -> list[np.ndarray]:
  """The mask of each image of `unlabelled`; errors as for `mask_of`."""
  folder = path_of(named.dataset.source.partition(":")[2])
  names = [named.source.name(row) for row in range(len(named.source))]
  inner = [path_of(name).relative_to(folder).with_suffix(".png") for name in names]
  return [
    mask_of(name, folder.parent / MASKS / mask) for name, mask in zip(names, inner, strict=True)
  ]


def mask_of(image: str, path: Path) -> np.ndarray:
  """The mask of an image, (H, W) uint8, in the file `path`.

  Raises:
    ConfigError: it is missing, or not such a mask.
  """
  if not files.is_file(path):
    raise ConfigError(f"{image} has no mask {path}; add it, or leave the image out.")
  try:
    with Image.open(io.BytesIO(files.read_bytes(path, most=MAX_BYTES)), formats=["PNG"]) as opened:
      mode = opened.mode
      stored = pillow.raw_mode(opened)[0]
      mask = np.asarray(opened)
  except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
    raise ConfigError(f"The mask {path} cannot be read: {error}") from error
  if mode not in MODES or stored in pillow.SCALED:
    raise ConfigError(
      f"The mask {path} has pixels of the kind {stored or mode}; it must be a PNG of 8 bits, grey "
      "or with a palette, whose values are classes."
    )
  if mask.shape != (size := size_of(image)):
    raise ConfigError(f"The mask {path} has {mask.shape} pixels, and its image {size}.")
  return mask


def size_of(image: str) -> tuple[int, int]:
  """The rows and columns of an image file, upright.

  Raises:
    ConfigError: it cannot be read.
  """
  try:
    data = files.read_bytes(path_of(image), most=MAX_BYTES)
    return pictures.as_stored(data, max_pixels=MAX_PIXELS).shape[:2]
  except (BadImage, OSError) as error:
    raise ConfigError(f"{image} cannot be read: {error}") from error
