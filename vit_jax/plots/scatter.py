"""Places of images in the plane, coloured by class."""

from collections.abc import Sequence

import numpy as np

from vit_jax.plots.labels import label

MAX_CLASSES = 20  # in the legend: ten colours, two markers


def figure(places: np.ndarray, labels: Sequence[str], title: str):
  """A figure with a dot for each image.

  Args:
    places: (N, 2).
    labels: the class of each image; () if they are not known. Above 20 classes, colours repeat and
      there is no legend.
    title: of the figure.

  Returns:
    A figure of Matplotlib.
  """
  from matplotlib.figure import Figure  # slow to import

  drawn = Figure(figsize=(8, 6.5), layout="constrained")
  axes = drawn.subplots()
  axes.set(title=title, xticks=[], yticks=[])
  classes = sorted(set(labels))
  if not classes:
    axes.scatter(*places.T, s=12)
  for i, name in enumerate(classes):
    own = places[np.array(labels) == name]
    axes.scatter(*own.T, s=12, color=f"C{i % 10}", marker="o^"[i // 10 % 2], label=label(name))
  if 0 < len(classes) <= MAX_CLASSES:
    drawn.legend(loc="outside right upper")
  return drawn
