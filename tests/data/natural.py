"""Windows of scikit-learn's two photographs, and ways to copy them."""

import cv2
import numpy as np
import simplejpeg
from sklearn import datasets


def photographs(count: int, *, side: int, seed: int) -> list[np.ndarray]:
  """Distinct windows (H, W, 3) uint8 of width `side` and different heights."""
  rng, out = np.random.default_rng(seed), []
  both = datasets.load_sample_images().images
  for index in range(count):
    photo, size = both[index % 2], int(rng.integers(200, 400))
    top = int(rng.integers(0, photo.shape[0] - size))
    left = int(rng.integers(0, photo.shape[1] - size))
    window = photo[top : top + size, left : left + size]
    height = round(side * rng.uniform(0.8, 1.25))
    out.append(cv2.resize(window, (side, height), interpolation=cv2.INTER_AREA))
  return out


def tiles(side: int) -> list[np.ndarray]:
  """Small windows (side, side, 3) uint8 that neither overlap nor touch."""
  return [
    np.ascontiguousarray(photo[top : top + side, left : left + side])
    for photo in datasets.load_sample_images().images
    for top in range(0, photo.shape[0] - side, side + 4)
    for left in range(0, photo.shape[1] - side, side + 4)
  ]


def cut(image: np.ndarray, *shares: float) -> np.ndarray:
  """The image without these fractions at the top, bottom, left and right."""
  height, width = image.shape[:2]
  top, bottom, left, right = np.rint(np.array(shares) * [height, height, width, width]).astype(int)
  return np.ascontiguousarray(image[top : height - bottom, left : width - right])


def encoded(image: np.ndarray) -> bytes:
  """The image as a JPEG of quality 50."""
  return simplejpeg.encode_jpeg(np.ascontiguousarray(image), quality=50)


def resized(image: np.ndarray, factor: float) -> np.ndarray:
  """The whole image, enlarged or reduced."""
  how = cv2.INTER_AREA if factor < 1 else cv2.INTER_CUBIC
  return cv2.resize(image, None, fx=factor, fy=factor, interpolation=how)


COPIES = {
  "the same pixels": lambda image: image,
  "JPEG of quality 50": encoded,
  "half the size": lambda image: resized(image, 0.5),
  "twice the size": lambda image: resized(image, 2),
  "2% off all edges": lambda image: cut(image, 0.02, 0.02, 0.02, 0.02),
  "5% off all edges": lambda image: cut(image, 0.05, 0.05, 0.05, 0.05),
  "5% off one edge": lambda image: cut(image, 0, 0, 0.05, 0),
  "3% off two edges": lambda image: cut(image, 0.03, 0, 0, 0.03),
  "all together": lambda image: encoded(resized(cut(image, 0.01, 0.03, 0.02, 0.01), 0.5)),
}
