"""Models of other libraries for images that their patches do not tile, as 14 does not divide 384.

Those models ignore the pixels at the right and at the bottom that no whole patch covers. Here they
are cut off at all sides.
"""

import dataclasses
import logging

from vit_jax.config import Size, as_size, in_pixels, sides
from vit_jax.weights.card import Card

_log = logging.getLogger(__name__)


def covered(size: Size, patch: Size) -> Size:
  """The size of what whole patches cover of images of `size` pixels."""
  return as_size([side - side % each for side, each in zip(sides(size), sides(patch), strict=True)])


def of_card(card: Card, patch: Size, library: str) -> Card:
  """A card of the library, for the part that whole patches cover; warns if it is not the whole."""
  size = covered(card.image_size, patch)
  if size == card.image_size:
    return card
  _log.warning(
    "Patches of %s pixels cover %s of the %s pixels of an image: those at the top left in %s, "
    "those in the centre here.",
    *map(in_pixels, (patch, size, card.image_size)),
    library,
  )
  resize = card.resize or card.image_size
  squeeze = card.squeeze or not card.resize
  return dataclasses.replace(card, image_size=size, resize=resize, squeeze=squeeze)
