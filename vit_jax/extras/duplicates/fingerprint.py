"""Fingerprints for finding copies of images: a grey thumbnail, and hashes of views of it.

A copy may be encoded again, resized, or cropped by up to 5% at each edge. Encoding and resizing
hardly change a perceptual hash (signs of the low frequencies of a discrete cosine transform).
Cropping changes up to 26 of 64 bits, as many as differ between different images. Therefore a test
image has hashes of 25 views, each cropped differently. A training image has two: the whole image,
in case it is the cropped copy, and one cropped on all sides, in case the test image is. Then one
pair of views shows nearly the same.
"""

import hashlib
from typing import NamedTuple

import cv2
import imagehash
import numpy as np
from PIL import Image

from vit_jax.data import images
from vit_jax.evaluation.examples import visible

THUMBNAIL = 48  # pixels a side
VIEW = 32  # pixels a side
BITS = 64  # of a hash
CUT = 0.05  # largest fraction cut off at an edge

_EDGES = ((0.0, 0.0), (CUT / 2, CUT / 2), (CUT, CUT), (CUT, 0.0), (0.0, CUT))
_WHOLE = ((0.0, 0.0), (0.0, 0.0))
_INNER = ((CUT, CUT), (CUT, CUT))

# Views: fractions cut off at (top, bottom), (left, right).
KNOWN_VIEWS = tuple((vertical, horizontal) for vertical in _EDGES for horizontal in _EDGES)
SOUGHT_VIEWS = (_WHOLE, _INNER)


class Fingerprint(NamedTuple):
  """The properties of an image that are compared.

  Attributes:
    thumbnail: (48, 48) uint8, grey; the aspect ratio is not kept.
    side: the smaller side of the image in pixels.
    digest: of the size and the pixels; equal for the same image in another lossless file.
  """

  thumbnail: np.ndarray
  side: int
  digest: bytes


def fingerprint(image: bytes | np.ndarray, *, max_pixels: int) -> Fingerprint:
  """The fingerprint of an encoded file, or of uint8 pixels (H, W) or (H, W, channels).

  Raises:
    BadImage: as `images.decode`.
  """
  stored = images.as_stored(image, max_pixels=max_pixels)
  pixels = visible(stored)[..., :3]
  side = min(pixels.shape[:2])
  grey = cv2.cvtColor(np.ascontiguousarray(pixels), cv2.COLOR_RGB2GRAY)
  interpolation = cv2.INTER_AREA if side > THUMBNAIL else cv2.INTER_LINEAR
  thumbnail = cv2.resize(grey, (THUMBNAIL, THUMBNAIL), interpolation=interpolation)
  digest = hashlib.blake2b(np.ascontiguousarray(pixels), digest_size=16)
  digest.update(repr(pixels.shape).encode())
  if stored.shape[2] not in (1, images.RGB):  # grey is as RGB
    digest.update(np.ascontiguousarray(stored))
  return Fingerprint(thumbnail, side, digest.digest())


def view(thumbnail: np.ndarray, cut) -> np.ndarray:
  """The view of a thumbnail without the fractions `cut` at its edges: (32, 32) float32."""
  (top, bottom), (left, right) = cut
  down = (1 - top - bottom) * THUMBNAIL / VIEW
  across = (1 - left - right) * THUMBNAIL / VIEW
  # Maps the centre of each pixel of the view to a place in the thumbnail.
  place = np.array(
    [
      [across, 0, left * THUMBNAIL + across / 2 - 0.5],
      [0, down, top * THUMBNAIL + down / 2 - 0.5],
    ]
  )
  return cv2.warpAffine(
    thumbnail.astype(np.float32),
    place,
    (VIEW, VIEW),
    flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP,
    borderMode=cv2.BORDER_REPLICATE,
  )


def hashes(thumbnail: np.ndarray, cuts) -> np.ndarray:
  """ImageHash's `phash` of each view: (views,) uint64."""
  bits = []
  for cut in cuts:
    pixels = np.rint(view(thumbnail, cut)).astype(np.uint8)
    bits.append(imagehash.phash(Image.fromarray(pixels)).hash.ravel())
  return np.packbits(bits, axis=1, bitorder="little").view("<u8")[:, 0].astype(np.uint64)
