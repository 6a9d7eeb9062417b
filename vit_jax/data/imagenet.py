"""The classes of ImageNet."""

import functools
import importlib.util
import pathlib


@functools.cache
def imagenet_classes() -> tuple[str, ...]:
  """ImageNet's 1,000 classes as WordNet ids such as "n01440764", sorted, as TFDS names them.

  Reads them from the package of TFDS; no dataset needs to be prepared.
  """
  package = pathlib.Path(importlib.util.find_spec("tensorflow_datasets").origin).parent
  return tuple((package / "datasets/imagenet2012/labels.txt").read_text().split())
