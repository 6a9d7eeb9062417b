"""Makes the table of docs/duplicates.md: copies found and false copies, by size and contrast.

python -m tests.extras.duplicates_table    (about 3 minutes on one core)

The images are windows of three photographs that come with scikit-learn and matplotlib. The
photographs are enlarged first, so that many windows are nearly flat. Windows of one size do not
overlap.
"""

import itertools
import pathlib

import cv2
import matplotlib
import numpy as np
from sklearn import datasets

from tests.data.natural import COPIES
from vit_jax.extras.duplicates.fingerprint import fingerprint
from vit_jax.extras.duplicates.search import Known, Search

SIZES = {48: 2, 64: 4, 128: 4, 224: 8}  # {side of the windows: factor of enlargement}
CONTRASTS = (0, 2, 4, 8, 16, 128)  # standard deviation of the grey thumbnail, of 256 levels
KINDS = ("JPEG of quality 50", "half the size", "5% off all edges", "all together")
GAP = 8  # pixels between windows
MAX_COPIED = 60  # images to copy, for each size and contrast


def photographs() -> list[np.ndarray]:
  """The photographs, (H, W, 3) uint8."""
  portrait = pathlib.Path(matplotlib.get_data_path()) / "sample_data" / "grace_hopper.jpg"
  return [*datasets.load_sample_images().images, cv2.imread(str(portrait))]


def windows(side: int, scale: int) -> list[np.ndarray]:
  """All windows of the enlarged photographs."""
  found = []
  for photo in photographs():
    large = cv2.resize(photo, None, fx=scale, fy=scale, interpolation=cv2.INTER_CUBIC)
    tops, lefts = (range(0, length - side, side + GAP) for length in large.shape[:2])
    corners = itertools.product(tops, lefts)
    found += [np.ascontiguousarray(large[t : t + side, x : x + side]) for t, x in corners]
  return found


def rows(side: int, scale: int):
  """Yields a row of the table for each range of contrast."""
  images = windows(side, scale)
  prints = [fingerprint(image, max_pixels=10**7) for image in images]
  contrast = np.array([one.thumbnail.std() for one in prints])
  search = Search(Known.of((0, i), one) for i, one in enumerate(prints))
  false = np.array([bool(search.copied(one).keys() - {(0, i)}) for i, one in enumerate(prints)])
  for low, high in itertools.pairwise(CONTRASTS):
    (members,) = np.nonzero((low <= contrast) & (contrast < high))
    chosen = np.random.default_rng(0).permutation(members)[:MAX_COPIED]
    found = [share_found(search, images, chosen, kind) for kind in KINDS]
    yield side, f"{low} to {high}", len(members), int(false[members].sum()), *found


def share_found(search: Search, images: list, chosen: np.ndarray, kind: str) -> str:
  """The fraction of the images `chosen` whose copies are found."""
  copies = [(i, fingerprint(COPIES[kind](images[i]), max_pixels=10**7)) for i in chosen]
  return f"{np.mean([(0, i) in search.copied(one) for i, one in copies]):.0%}"


def main():
  """Prints the table."""
  print("|", " | ".join(("side", "contrast", "images", "with a false copy", *KINDS)), "|")
  print("|" + "---|" * (4 + len(KINDS)))
  for side, scale in SIZES.items():
    for row in rows(side, scale):
      print("|", " | ".join(map(str, row)), "|", flush=True)


if __name__ == "__main__":
  main()
