"""Mean attention distance of every head against depth (Figures 7 right and 11)."""

import numpy as np

from vit_jax.plots.charts import legend_above

AXES = ("along rows", "along columns")


def figure(distances: np.ndarray):
  """A figure with a dot for each head.

  Args:
    distances: (depth, heads) pixels; or (2, depth, heads), along rows and along columns.

  Returns:
    A figure of Matplotlib.
  """
  from matplotlib.figure import Figure  # slow to import

  drawn = Figure(figsize=(6, 4.5), layout="constrained")
  axes = drawn.subplots()
  both = distances.ndim == 3
  for values, name in zip(distances if both else distances[None], AXES, strict=False):
    depth, heads = values.shape
    layers = np.repeat(np.arange(depth), heads)
    axes.scatter(layers, values.flatten(), s=16, alpha=0.8, label=name if both else "a head")
    axes.plot(values.mean(axis=1), alpha=0.5, label="mean of heads")
  axes.set(xlabel="layer", ylabel="mean attention distance (pixels)")
  axes.set_ylim(0, 1.05 * axes.get_ylim()[1])
  axes.xaxis.get_major_locator().set_params(integer=True)
  axes.grid(alpha=0.3)
  legend_above(axes)
  return drawn
