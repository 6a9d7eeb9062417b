"""Sources of images, with or without labels; all follow one protocol, `Source`."""

import difflib
import logging
import os

from vit_jax.config import Data
from vit_jax.data.sources import foreign
from vit_jax.data.sources.base import Example, Source, SourceError
from vit_jax.data.sources.digits import Digits
from vit_jax.data.sources.folder import Folder
from vit_jax.data.sources.mixed import Mixed
from vit_jax.data.sources.objectnet import ObjectNet
from vit_jax.data.sources.renumbered import Renumbered
from vit_jax.data.sources.selected import Listed, Selected
from vit_jax.data.sources.subset import Remaining, Subset
from vit_jax.data.sources.synthetic import Synthetic
from vit_jax.data.sources.tfds import Tfds
from vit_jax.data.sources.unlabelled import Unlabelled
from vit_jax.data.sources.vtab_tasks import Vtab

__all__ = [
  "Example",
  "Listed",
  "Mixed",
  "Remaining",
  "Renumbered",
  "Selected",
  "Source",
  "SourceError",
  "Subset",
  "Unlabelled",
  "open_source",
]

_log = logging.getLogger(__name__)
FORMS = {
  "tfds": "tfds:NAME[/CONFIG][:VERSION]",
  "folder": "folder:DIR",
  "objectnet": "objectnet:DIR",
  "vtab": "vtab:TASK",
  "digits": "digits",
  "synthetic": "synthetic",
}


def open_source(
  spec: str,
  *,
  split: str,
  image_key: str = "image",
  label_key: str = "label",
  num_classes: int,
  max_pixels: int = Data().max_pixels,
) -> Source:
  """Opens the examples that `spec` names.

  Args:
    spec: "tfds:NAME[/CONFIG][:VERSION]", "folder:DIR", "objectnet:DIR", "vtab:TASK", "digits" or
      "synthetic".
    split: for TFDS, a split such as "train[:90%]"; for digits, "train" or "test"; for a folder, ""
      or a part such as "[:90%]"; for VTAB, one of vtab.SPLITS; for other sources, "".
    image_key: TFDS only: the feature that holds the image.
    label_key: for TFDS, the feature that holds the label, or the sequence of labels. "": no labels;
      a folder then gives all images in it and below it.
    num_classes: number of classes of "synthetic".
    max_pixels: larger images count as broken, for a source that decodes images itself.

  Raises:
    SourceError: the kind is unknown, or the data or the split does not exist.
  """
  kind, colon, argument = spec.partition(":")
  if kind not in FORMS or bool(colon) != (":" in FORMS[kind]) or bool(colon) != bool(argument):
    raise SourceError(_unknown(spec, kind=kind))
  if kind == "tfds":
    source = Tfds(argument, split=split, image_key=image_key, label_key=label_key)
    if source.as_written:
      _log.warning(
        "The examples of %s were written without shuffling, so %r is not a random part: it may lack"
        " classes, or hold few different subjects.",
        spec,
        split,
      )
    return source
  if kind == "folder":
    return Folder(argument, split=split, labelled=bool(label_key))
  source = _LABELLED[kind](argument, split, num_classes, max_pixels)
  return source if label_key else Unlabelled(source)


def absolute(spec: str) -> str:
  """The same source for any current directory: its folder by an absolute path."""
  kind, _, argument = spec.partition(":")
  if not FORMS.get(kind, "").endswith(":DIR"):
    return spec
  return f"{kind}:{os.path.abspath(os.path.expanduser(argument))}"


_LABELLED = {
  "objectnet": lambda directory, split, _, most: ObjectNet(directory, split=split, max_pixels=most),
  "vtab": lambda task, split, *_: Vtab(task, split=split),
  "digits": lambda _, split, *__: Digits(split=split),
  "synthetic": lambda _, split, classes, __: Synthetic(split=split, num_classes=classes),
}


def _unknown(spec: str, *, kind: str) -> str:
  if os.path.isdir(os.path.expanduser(spec)):
    return f'"{spec}" does not name a data source; {_as_folder(spec)}'
  if said := foreign.advice(spec):
    return f'"{spec}" does not name a data source.{said}'
  closeness = {name: difflib.SequenceMatcher(None, kind, name).ratio() for name in FORMS}
  nearest = sorted(FORMS, key=lambda name: -closeness[name])
  forms = ", ".join(FORMS[name] for name in nearest)
  return f'"{spec}" does not name a data source; give one of these, nearest first: {forms}.'


def _as_folder(path: str) -> str:
  try:
    Folder(path, split="")
  except SourceError as error:
    return f"as a folder of images it cannot be read either: {error}"
  return f"did you mean folder:{path}?"
