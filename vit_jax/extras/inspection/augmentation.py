"""Shows images after each operation of config.data.augment (`vit-jax visualize augment`)."""

import collections

from vit_jax.config import ConfigError, Data, in_pixels
from vit_jax.data.augmentation.samples import Sample, samples
from vit_jax.extras.inspection.gallery import Gallery
from vit_jax.extras.inspection.shown import InspectionResult
from vit_jax.extras.plots import captions
from vit_jax.weights.card import Card


def augmented(data: Data, gallery: Gallery) -> InspectionResult:
  """A row of images without augmentation, then a row for each operation.

  Raises:
    ConfigError: config.data.augment is empty, or an image cannot be read.
  """
  if not data.augment:
    raise ConfigError(
      "config.data.augment is empty, so there is nothing to show; give it, such as "
      "\"--config.data.augment=[{'kind': 'rand_augment'}]\"."
    )
  card = Card(
    image_size=data.image_size,
    resize=data.evaluate_resize,
    squeeze=data.evaluate_squeeze,
    resampling=data.resampled(),
  )
  images = gallery.squares(card)
  rows = [Sample("as it is", [""] * len(gallery), images), *samples(data.augment, images)]
  table = [
    [row.name, name, drawn]
    for row in rows
    for name, drawn in zip(gallery.names, row.arguments, strict=True)
  ]
  counts = collections.Counter(row.name.partition(":")[0] for row in rows[1:])
  text = ", ".join(f"{count} of {kind}" for kind, count in counts.items())
  names = [row.name.replace(": ", "\n") for row in rows]
  return InspectionResult(
    f"Operations on {gallery.in_words()} of {in_pixels(data.image_size)} px: {text}.",
    dict(images=len(gallery), operations=dict(counts)),
    [("augment.png", captions.rows(names, [row.images for row in rows]))],
    {"augment.csv": [["operation", "image", "drawn"], *table]},
  )
