"""Keeps small training images decoded in memory after the first read.

Reading and decoding a small image takes longer than a training step of a small model on it.
"""

from collections.abc import Iterable

import numpy as np

from vit_jax.data import images, jpeg
from vit_jax.data.sources import Example, Source
from vit_jax.data.sources.views import View

_MOST_BYTES = 2**28  # of all kept pixels in a process; images beyond that are read again
_MOST_PIXELS = 2**14  # of an image, 128 x 128; few larger ones would fit


class Kept(View):
  """The examples of a source; small images are decoded once, to the same pixels as by `images`.

  JPEG files are not kept, because only the rows and the resolution that a crop needs are decoded,
  which gives other pixels. Broken files are not kept either, so that each use is reported.

  Args:
    source: the examples.
    needed: names of the fields to keep with an image; all others are dropped.
  """

  def __init__(self, source: Source, needed: Iterable[str] = ()):
    super().__init__(source)
    self.fields = {name: source.fields[name] for name in needed}
    self._examples: dict[int, Example] = {}
    self._bytes = 0  # a race of threads may lose some, which does not matter

  def __getitem__(self, index: int) -> Example:
    if kept := self._examples.get(index):
      return kept
    example = self._source[index]
    if self._bytes >= _MOST_BYTES:
      return example
    return self._keep(index, example)

  def _keep(self, index: int, example: Example) -> Example:
    if isinstance(example.image, bytes) and jpeg.is_jpeg(example.image):
      return example
    try:
      pixels = images.as_rgb(example.image, max_pixels=_MOST_PIXELS).view()
    except images.BadImage:  # too large, or broken
      return example
    pixels.flags.writeable = False  # an augmentation that wrote to it would change later epochs
    fields = {name: x for name, x in example.fields.items() if name in self.fields}
    self._bytes += pixels.nbytes + sum(np.asarray(x).nbytes for x in fields.values())
    self._examples[index] = example._replace(image=pixels, fields=fields)
    return self._examples[index]
