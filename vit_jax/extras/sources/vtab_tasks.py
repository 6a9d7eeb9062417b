"""VTAB-1k: 19 tasks with 1,000 training images each, from datasets prepared by TFDS.

Source: Zhai et al., "A Large-scale Study of Representation Learning with the Visual Task Adaptation
Benchmark", 2019; splits and labels as in its published code.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping

import numpy as np

from vit_jax.data import images
from vit_jax.data.jpeg import BadImage
from vit_jax.data.sources import tfds
from vit_jax.data.sources.base import Example, SourceError

# Development trains on 800 images and chooses settings by 200; the final run trains on all 1,000.
TRAIN = 800
HELD_BACK = 200
SPLITS = ("train800", "val200", "train800val200", "test")


@dataclasses.dataclass(frozen=True)
class Label:
  """How the class of an example follows from a feature of its dataset.

  Attributes:
    key: the feature.
    class_names: names of the classes; empty: the names of the feature itself.
    rule: (the feature's value) -> the class.
  """

  key: str = "label"
  class_names: tuple[str, ...] = ()
  rule: Callable[[object], int] = int


@dataclasses.dataclass(frozen=True)
class VtabTask:
  """One of the 19 tasks.

  Attributes:
    data: the dataset, TFDS's NAME[/CONFIG].
    num_classes: number of classes.
    held_back: (split, percentage): where the images for choosing settings begin.
    test: (split, percentage): where the test images begin; they end with the split.
    label: how to find the class.
    pixels: (an encoded image) -> the image for training.
  """

  data: str
  num_classes: int
  held_back: tuple[str, int] = ("validation", 0)
  test: tuple[str, int] = ("test", 0)
  label: Label = Label()
  pixels: Callable[[bytes], bytes | np.ndarray] = bytes


def bin_of(value: float, edges: tuple[float, ...]) -> int:
  """The index i of the bin (edges[i], edges[i + 1]] that holds the value; -1 below all bins."""
  return int(np.searchsorted(edges, value, side="left")) - 1


def between(edges: tuple[float, ...]) -> tuple[str, ...]:
  """Names of the bins."""
  return tuple(f"{low:g} to {high:g}" for low, high in itertools.pairwise(edges))


OBJECTS = range(3, 11)  # numbers of objects in an image of CLEVR
OBJECT_EDGES = (0.0, 8.0, 8.5, 9.0, 9.5, 10.0, 100.0)
VEHICLE_EDGES = (-100.0, 8.0, 20.0, 999.0)  # metres
NO_VEHICLE = 1000.0
VEHICLES = 3  # car, van and truck are the first classes of KITTI
GROUPS = 16  # classes into which the positions and orientations of dSprites are grouped
SPRITE_PIXELS = 64 * 64


def object_count(objects: Mapping[str, np.ndarray]) -> int:
  """The number of objects, minus 3."""
  return len(objects["size"]) - OBJECTS.start


def object_distance(objects: Mapping[str, np.ndarray]) -> int:
  """The bin of the nearest object's distance."""
  distances = np.reshape(objects["pixel_coords"], (-1, 3))[:, 2]
  return bin_of(min(distances, default=-1.0), OBJECT_EDGES)


def vehicle_distance(objects: Mapping[str, np.ndarray]) -> int:
  """The bin of the nearest vehicle's distance along the camera's axis; the last: no vehicle."""
  depths = np.reshape(objects["location"], (-1, 3))[:, 2]
  vehicles = depths[np.asarray(objects["type"]) < VEHICLES]
  return bin_of(min(vehicles, default=NO_VEHICLE), (*VEHICLE_EDGES, np.inf))


def grouped(value: int, *, values: int) -> int:
  """The group of a value from 0 to `values` - 1, in `GROUPS` groups of about equal size."""
  return int(value) * GROUPS // values


def sprite(image: bytes) -> np.ndarray:
  """Decodes an image of pixels 0 and 1 to (H, W, 3) uint8 of 0 and 255."""
  return images.decode(image, max_pixels=SPRITE_PIXELS) * np.uint8(255)


def sprites(key: str, *, values: int) -> VtabTask:
  """A task on dSprites: predict the group of a feature that has `values` values."""
  names = tuple(str(group) for group in range(GROUPS))
  rule = functools.partial(grouped, values=values)
  label = Label(key, names, rule)
  return VtabTask("dsprites", GROUPS, ("train", 80), ("train", 90), label, sprite)


# The names of Table 9 in lower case, in its order.
TASKS = {
  "caltech101": VtabTask("caltech101", 102, ("train", 90)),
  "cifar-100": VtabTask("cifar100", 100, ("train", 90)),
  "dtd": VtabTask("dtd", 47),
  "flowers102": VtabTask("oxford_flowers102", 102),
  "pets": VtabTask("oxford_iiit_pet", 37, ("train", 80)),
  "sun397": VtabTask("sun397/tfds", 397),
  "svhn": VtabTask("svhn_cropped", 10, ("train", 90)),
  "camelyon": VtabTask("patch_camelyon", 2),
  "eurosat": VtabTask("eurosat/rgb", 10, ("train", 60), ("train", 80)),
  "resisc45": VtabTask("resisc45", 45, ("train", 60), ("train", 80)),
  "retinopathy": VtabTask("diabetic_retinopathy_detection/btgraham-300", 5),
  "clevr-count": VtabTask(
    "clevr",
    len(OBJECTS),
    ("train", 90),
    ("validation", 0),
    Label("objects", tuple(map(str, OBJECTS)), object_count),
  ),
  "clevr-dist": VtabTask(
    "clevr",
    len(OBJECT_EDGES) - 1,
    ("train", 90),
    ("validation", 0),
    Label("objects", between(OBJECT_EDGES), object_distance),
  ),
  "dmlab": VtabTask("dmlab", 6),
  "dspr-loc": sprites("label_x_position", values=32),
  "dspr-ori": sprites("label_orientation", values=40),
  "kitti-dist": VtabTask(
    "kitti",
    len(VEHICLE_EDGES),
    label=Label("objects", (*between(VEHICLE_EDGES), "no vehicle"), vehicle_distance),
  ),
  "snorb-azim": VtabTask("smallnorb", 18, ("test", 0), ("test", 50), Label("label_azimuth")),
  "snorb-elev": VtabTask("smallnorb", 9, ("test", 0), ("test", 50), Label("label_elevation")),
}


class Vtab(tfds.Records):
  """The images of a task in one of `SPLITS`, with the task's labels.

  Args:
    name: one of `TASKS`.
    split: one of `SPLITS`.

  Raises:
    SourceError: the task or split is unknown, or the dataset does not exist or is the wrong one.
    BadImage: from an item: its record is damaged, or its label is not a class of the task.
  """

  form = "vtab:TASK"

  def __init__(self, name: str, *, split: str):
    self._task = task_of(name)
    label = self._task.label
    prepared = tfds.open_prepared(self._task.data)
    builder = prepared.builder
    tfds.check_features(builder, "image", label.key)
    self.class_names = label.class_names or tuple(builder.info.features[label.key].names)
    sizes = {name: info.num_examples for name, info in builder.info.splits.items()}
    examples = tfds_split(name, split, sizes)
    self.identity = f"vtab:{name} {prepared.identity(examples)}"
    super().__init__(prepared, examples, image_key="image", label_key=label.key)

  def __getitem__(self, index: int) -> Example:
    features = self.features(index)
    pixels = self._task.pixels(features["image"])
    return Example(pixels, self._class(features, index), self.name(index))

  def labels(self, index: int) -> tuple[int, ...]:
    """The task's class; the image is not decoded."""
    return self._class(self.label(index), index)

  @classmethod
  def named_parts(cls, argument: str) -> dict[str, tuple[str, str]]:
    """The splits of the benchmark."""
    return {split: (argument, split) for split in SPLITS}

  def _class(self, features: dict, index: int) -> tuple[int]:
    label = self._task.label.rule(features[self._task.label.key])
    if not 0 <= label < len(self.class_names):
      raise BadImage(
        f"{self.name(index)}: its {self._task.label.key} is outside of the task's "
        f"{len(self.class_names)} classes."
      )
    return (label,)


def task_of(name: str) -> VtabTask:
  """The task with this name.

  Raises:
    SourceError: there is no such task.
  """
  if name not in TASKS:
    raise SourceError(f'VTAB has no task "{name}"; it has {", ".join(TASKS)}.')
  return TASKS[name]


def tfds_split(name: str, split: str, sizes: Mapping[str, int]) -> str:
  """A split of a task in TFDS's notation, in whole examples: percentages are rounded down.

  Args:
    name: one of `TASKS`.
    split: one of `SPLITS`.
    sizes: number of examples in each split of the dataset.

  Raises:
    SourceError: the split is unknown, or the dataset is too small for it.
  """
  if split not in SPLITS:
    raise SourceError(f'VTAB has no split "{split}"; it has {", ".join(SPLITS)}.')
  task = task_of(name)
  begin = {}
  for source, percentage in (task.held_back, task.test):
    if source not in sizes:
      raise SourceError(f"tfds:{task.data} has no split {source!r}; it has {', '.join(sizes)}.")
    begin[source, percentage] = percentage * sizes[source] // 100
  held, _ = task.held_back
  first = begin[task.held_back]
  last = first + HELD_BACK
  if sizes.get("train", 0) < TRAIN or sizes[held] < last or (held == "train" and first < TRAIN):
    found = ", ".join(f"{source} {count:,}" for source, count in sizes.items())
    raise SourceError(
      f"tfds:{task.data} is too small for the {TRAIN} + {HELD_BACK} training images of VTAB-1k's "
      f"{name} ({found} examples); prepare the whole dataset."
    )
  train = f"train[:{TRAIN}]"
  held_back = f"{held}[{first}:{last}]"
  test, _ = task.test
  if begin[task.test]:
    test = f"{test}[{begin[task.test]}:]"
  examples = (train, held_back, f"{train}+{held_back}", test)
  return dict(zip(SPLITS, examples, strict=True))[split]
