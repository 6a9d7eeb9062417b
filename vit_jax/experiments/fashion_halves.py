"""The two halves of Fashion-MNIST's classes, as folders of images."""

import dataclasses
import pathlib

from PIL import Image

from vit_jax.data import sources
from vit_jax.storage import files

HALVES = {"first": range(5), "second": range(5, 10)}


@dataclasses.dataclass(frozen=True)
class Size:
  """The size of the experiment.

  Attributes:
    seeds: seeds of the runs.
    pretraining: training images for each class of the first half (at most 6,000).
    epochs: epochs of pre-training.
    images: training images for each class of the second half.
    steps: steps of fine-tuning and of training from scratch, 64 images each.
    test: test images for each class.
  """

  seeds: tuple[int, ...] = (0, 1, 2)
  pretraining: int = 6000
  epochs: int = 3
  images: int = 200
  steps: int = 200
  test: int = 1000


FAST = Size(seeds=(0, 1), pretraining=64, epochs=1, images=16, steps=3, test=16)


def write_half(source, folder: pathlib.Path, classes, per_class: int):
  """Writes the first images of each class as FOLDER/CLASS/NUMBER.png, unless they are there.

  Args:
    source: examples with pixels or encoded images, and one label each.
    folder: the result; it appears only when it is complete.
    classes: labels to write.
    per_class: most images of a class.
  """
  if folder.is_dir():
    return
  part = folder.with_name(folder.name + ".part")
  counts = dict.fromkeys(classes, 0)
  for index in range(len(source)):
    image, (label,), _ = source[index]
    if counts.get(label, per_class) >= per_class:
      continue
    path = part / str(label) / f"{counts[label]:05d}.png"
    files.make_folder(path.parent)
    if isinstance(image, bytes):
      files.write_bytes(path, image)
    else:
      files.write_whole(path, png(image))
    counts[label] += 1
  files.rename(part, folder)


def images_of(folder: pathlib.Path, half: str, split: str, size: Size) -> pathlib.Path:
  """The folder of the images of a half; its name holds their number in each class."""
  train = {"first": size.pretraining, "second": size.images}[half]
  return folder / "images" / f"{half}_{split}_{train if split == 'train' else size.test}"


def prepare(folder: pathlib.Path, size: Size):
  """Writes both halves of the classes, for both splits.

  Raises:
    SourceError: Fashion-MNIST is not prepared.
  """
  for split in ("train", "test"):
    source = sources.open_source("tfds:fashion_mnist", split=split, num_classes=10)
    for half, classes in HALVES.items():
      images = images_of(folder, half, split, size)
      write_half(source, images, classes, int(images.name.rpartition("_")[2]))


def png(pixels):
  """A function that writes pixels as PNG to a path."""
  return lambda partial: Image.fromarray(pixels.squeeze()).save(partial, format="PNG")
