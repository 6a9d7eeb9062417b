"""Reads the release of ObjectNet: images/FOLDER/*.png, and mappings/ to ImageNet's classes.

Source: Barbu et al., "ObjectNet: A large-scale bias-controlled dataset for pushing the limits of
object recognition models", 2019; https://objectnet.dev.
"""

import json
import pathlib

from vit_jax.data.classes import imagenet_classes
from vit_jax.data.images import decode
from vit_jax.data.jpeg import BadImage
from vit_jax.data.sources.base import Example, Listed, Selected, SourceError
from vit_jax.data.sources.folder import Folder
from vit_jax.storage import files
from vit_jax.storage.paths import local_path

_BORDER = 1  # every image has a red border of one pixel
_MAX_BYTES = 2**20  # of a mapping file; the released files have 22 kB at most
_FOLDERS = "folder_to_objectnet_label.json"  # {folder: ObjectNet's class}
_SHARED = "objectnet_to_imagenet_1k.json"  # {ObjectNet's class: "ImageNet's name; another; ..."}
_NAMES = "imagenet_to_label_2012_v2"  # ImageNet's names, one a line
_LINES = "pytorch_to_imagenet_2012_id.json"  # {"index among the sorted WordNet ids": line, from 0}


class ObjectNet(Selected):
  """The images of the classes that ImageNet has too, labelled with ImageNet's classes.

  An ObjectNet class may correspond to several ImageNet classes, each of which counts as correct.
  Images of other classes are left out, because no prediction for them could be correct. The red
  border is cut off.

  Args:
    directory: the folder of the release.
    max_pixels: larger images count as broken.

  Raises:
    SourceError: images or mapping files are missing or wrong.
    BadImage: from an item: it cannot be decoded.
  """

  form = "objectnet:DIR"

  def __init__(self, directory: str, *, max_pixels: int):
    root = local_path(self.anywhere(directory))
    images = Folder(str(root / "images"))
    classes = _classes(root / "mappings", images.class_names)
    shared = [row for row in range(len(images)) if classes[images.labels(row)[0]]]
    if not shared:
      raise SourceError(
        f'"{root}" has no images of a class that ImageNet shares; give the whole release.'
      )
    super().__init__(images, Listed(shared), f"objectnet {len(shared)} of {images.identity}")
    self.class_names = imagenet_classes()
    self.multi_label = True
    self._classes = classes
    self._max_pixels = max_pixels

  def __getitem__(self, index: int) -> Example:
    example = super().__getitem__(index)
    try:
      pixels = decode(example.image, max_pixels=self._max_pixels)
    except BadImage as error:
      raise BadImage(f"{example.name}: {error}") from error
    inner = pixels[_BORDER:-_BORDER, _BORDER:-_BORDER]
    if not inner.size:
      height, width = pixels.shape[:2]
      raise BadImage(f"{example.name}: {width} x {height} pixels are all border.")
    return example._replace(image=inner)

  def _seen(self, labels: tuple[int, ...]) -> tuple[int, ...]:
    """The ImageNet classes to which the file's folder corresponds."""
    return self._classes[labels[0]]

  @classmethod
  def anywhere(cls, argument: str) -> str:
    """The absolute path."""
    return Folder.anywhere(argument)


def _classes(mappings: pathlib.Path, folders: tuple[str, ...]) -> list[tuple[int, ...]]:
  """For each folder its ImageNet classes, ascending; () if it has none."""
  label_of = _json(mappings / _FOLDERS, str)
  shared = _json(mappings / _SHARED, str)
  index_of = _index_by_name(mappings)
  unknown = [folder for folder in folders if folder not in label_of]
  if unknown:
    raise SourceError(
      f'"{mappings / _FOLDERS}" does not name the folder "{unknown[0]}" of images; remove the'
      " folder, or copy the file again from the release."
    )
  names = [filter(None, shared.get(label_of[folder], "").split("; ")) for folder in folders]
  try:
    return [tuple(sorted(index_of[name] for name in several)) for several in names]
  except KeyError as error:
    raise SourceError(
      f'"{mappings / _SHARED}" holds the name {error}, which does not name exactly one class in'
      f" {_NAMES}; copy them again from the release."
    ) from error


def _index_by_name(mappings: pathlib.Path) -> dict[str, int]:
  """{ImageNet's name: its class}, without names that two classes share, such as "crane"."""
  lines = [line.strip() for line in _text(mappings / _NAMES).splitlines()]
  place = _json(mappings / _LINES, int)
  ids = range(len(imagenet_classes()))
  complete = {str(i) for i in ids} == place.keys() and {*ids} == {*place.values()}
  if len(lines) != len(ids) or not complete:
    raise SourceError(
      f'"{mappings / _NAMES}" must hold {len(ids)} lines, and {_LINES} the line of each class; copy'
      " them again from the release."
    )
  return {lines[line]: int(i) for i, line in place.items() if lines.count(lines[line]) == 1}


def _json(path: pathlib.Path, kind: type) -> dict:
  """Reads a mapping from strings to values of type `kind`."""
  text = _text(path)
  try:
    values = json.loads(text)
  except (ValueError, RecursionError) as error:
    raise SourceError(f'"{path}" is not JSON ({error}); copy it again from the release.') from error
  if type(values) is not dict or any(type(value) is not kind for value in values.values()):
    raise SourceError(
      f'"{path}" is not a mapping to {kind.__name__}; copy it again from the release.'
    )
  return values


def _text(path: pathlib.Path) -> str:
  try:
    return files.read_bytes(path, most=_MAX_BYTES).decode()
  except (OSError, UnicodeDecodeError) as error:
    raise SourceError(
      f'The mapping file "{path}" cannot be read ({error}); give the folder of the whole release,'
      f" with images/ and with {_FOLDERS}, {_SHARED}, {_NAMES} and {_LINES} in mappings/."
    ) from error
