"""Settings of the examples: training data, evaluation sets, and their way to the devices."""

import dataclasses
from collections.abc import Mapping

from vit_jax.config.fields import MOST_PIXELS, MOST_SIDE, group, named, setting


@dataclasses.dataclass(frozen=True)
class Dataset:
  """Where examples come from; see vit_jax/data/sources for the kinds.

  An evaluation set whose source is empty is left out.
  """

  source: str = setting(
    "",
    "tfds:NAME[/CONFIG][:VERSION], folder:DIR, objectnet:DIR, vtab:TASK, digits or synthetic",
  )
  split: str = setting(
    "",
    "split in TFDS's syntax, such as train[:90%]; of a folder, a random part of each class such as "
    "[:90%], or empty",
  )
  image_key: str = setting("image", "TFDS feature that holds the image")
  label_key: str = setting(
    "label",
    "TFDS feature that holds the label or the labels; empty, with any source: images without "
    "labels, of a folder all those in it and below it. Classification and evaluation need labels",
  )
  exclude: str = setting(
    "", "file that names examples to leave out, as tools/dedup.py writes it; empty: none"
  )
  subset: int = setting(
    0,
    "random examples, of those that `exclude` leaves; the same for every run, whatever its seed, "
    "and the smaller subset inside the larger; 0: all",
    low=0,
    high=10**12,
  )
  resize: float = setting(
    -1.0,
    "of an evaluation set, in place of config.data.evaluate_resize: 0 resizes straight to the "
    "square; else the smaller side gets so many times config.data.image_size, at least 1, and the "
    "centre is cut; -1: does not take its place",
    low=-1.0,
    high=8.0,
  )
  classes: int = setting(
    0,
    "of an evaluation set: 0 predicts among all classes; else among those alone that occur in the "
    "set, which must be so many",
    low=0,
    high=10**7,
  )


@dataclasses.dataclass(frozen=True)
class FewShot:
  """A linear probe of few training images a class; see vit_jax/evaluation/few_shot.py.

  One whose training or test source is empty is left out.
  """

  train: Dataset = group(Dataset)
  test: Dataset = group(Dataset)
  shots: tuple = setting((1, 5, 10, 25), "training images of each class")
  seeds: int = setting(
    3, "draws of the training images, with the seeds 0, 1, ...", low=1, high=1000
  )


@dataclasses.dataclass(frozen=True)
class Nearest:
  """Classes by the nearest training images; see vit_jax/evaluation/nearest_neighbours.py.

  One whose training or test source is empty is left out.
  """

  train: Dataset = group(Dataset)
  test: Dataset = group(Dataset)
  neighbours: int = setting(20, "training images that vote", low=1, high=10**6)
  temperature: float = setting(
    0.07, "a vote weighs exp(cosine similarity / temperature)", low=0.001, high=1000.0
  )


@dataclasses.dataclass(frozen=True)
class Data:
  """Examples, and their way to the device."""

  train: Dataset = group(Dataset)
  evaluate: Mapping[str, Dataset] = named("sets that the head is scored on")
  sampling: str = setting(
    "",
    "how the order of every epoch, subsets, parts of folders and crops are drawn: uniform, or "
    "grain, as before release 0.2.0 (biased for some sizes; parts of folders by file name; some "
    "crops a little smaller than crop_area); empty: as when the run began, uniform where it is new",
    choices=("", "uniform", "grain"),
  )
  allow_overlap: bool = setting(
    False, "score images that are trained on; without it a run that would is refused"
  )
  image_size: int = setting(
    224,
    "side of the square images, pixels; 0, for --mode=evaluate alone: the weights' own",
    low=0,
    high=MOST_SIDE,
  )
  crop_area: tuple = setting(
    (0.05, 1.0), "least and largest share of the image's area in a training crop"
  )
  crop_aspect: tuple = setting((3 / 4, 4 / 3), "least and largest width / height of the crop")
  train_resize: int = setting(
    0,
    "training images: 0 takes the crops above; else the whole image is resized to a square of this "
    "many pixels and one of image_size is cut out at random",
    low=0,
    high=MOST_PIXELS,
  )
  flip: bool = setting(True, "flip half of the training images left to right")
  mixup: float = setting(
    0.0,
    "alpha of MixUp: training images are blended in pairs by a share drawn from "
    "Beta(alpha, alpha); 0: none",
    low=1e-3,
    high=1e3,
    off=0.0,
  )
  evaluate_resize: int = setting(
    0,
    "evaluation images: 0 resizes straight to the square; else "
    "the smaller side gets this many pixels and the centre is cut",
    low=0,
    high=MOST_PIXELS,
  )
  max_pixels: int = setting(
    2**26, "larger images are refused as decompression bombs", low=1, high=2**30
  )
  bad_limit: float = setting(
    0.01,
    "the run stops when more than this share of the training images cannot be decoded",
    low=0.0,
    high=1.0,
  )
  cache: str = setting(
    "",
    "folder that tools/cache.py has filled with the training images, decoded and reduced to "
    "cache_side: quicker to read, but crops are then taken from the reduced images; empty: none. "
    "Evaluation never uses it",
  )
  cache_side: int = setting(
    256,
    "smaller side of the images in the cache, pixels; smaller ones stay as they are",
    low=1,
    high=MOST_PIXELS,
  )
  threads: int = setting(16, "decoding threads per process", low=1, high=1024)
  workers: int = setting(0, "decoding processes per host; 0: threads only", low=0, high=256)
  ahead: int = setting(2, "batches put on the devices ahead of the step", low=1, high=64)
