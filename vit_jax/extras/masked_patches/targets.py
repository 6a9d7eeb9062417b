"""Targets of masked patch prediction (Section 4.6, Appendix B.1.2).

Targets come from the uint8 pixels of the image that the model sees. Colours have 3 bits for each
channel: level = floor(mean / 32), class = 64 R + 8 G + B. Means are sums of whole numbers divided
once, so they are exact.
"""

import dataclasses
from typing import ClassVar, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax

from vit_jax.data.batches import normalize

LEVELS = 8  # of each channel
WIDTH = 256 // LEVELS  # pixel values in one level
COLORS = LEVELS**3


class Target(Protocol):
  """A target. Shapes: B images of N patches, M of them corrupted, T values per patch.

  Attributes:
    least_side: smallest side of a patch that can have this target, pixels.
    measure: name of the score that `scores` gives, "accuracy" or "squared_error".
  """

  least_side: int
  measure: str

  def outputs(self, side: int) -> int:
    """The number of predicted values for a patch of side x side pixels."""
    ...

  def of(self, images: jax.Array, side: int) -> jax.Array:
    """The targets of all patches in raster order: (B, S, S, 3) uint8 -> (B, N, T)."""
    ...

  def errors(self, predictions: jax.Array, targets: jax.Array) -> jax.Array:
    """The losses (B, M) of predictions (B, M, outputs) float32."""
    ...

  def scores(self, predictions: jax.Array, targets: jax.Array) -> jax.Array:
    """The score (B, M) of each prediction."""
    ...

  def statistics(self, targets: jax.Array, mask: jax.Array) -> dict[str, jax.Array]:
    """Sums over targets (B, M, T) of images whose mask (B,) is 1, for `constant_loss`."""
    ...

  def constant_loss(self, statistics: dict[str, jax.Array]) -> jax.Array:
    """The mean loss of the best prediction that is the same for all patches; NaN without any."""
    ...

  def pictures(self, predictions: jax.Array, side: int) -> jax.Array:
    """The predicted patches as pixels, (B, M, side, side, 3) uint8."""
    ...


@dataclasses.dataclass(frozen=True)
class Colors:
  """The colours of a patch reduced to cells x cells pixels; each is one of 512 classes.

  The loss is the mean of the cross-entropies of all cells, the score the fraction of right cells.
  A cell is the mean over the area that it covers: a pixel on the border between cells counts in
  each cell by the fraction of its area there.

  Attributes:
    cells: reduced pixels along a side.
  """

  measure: ClassVar[str] = "accuracy"

  cells: int

  @property
  def least_side(self) -> int:
    """A cell covers at least a pixel."""
    return self.cells

  def outputs(self, side: int) -> int:
    """512 logits for each cell."""
    return self.cells**2 * COLORS

  def of(self, images: jax.Array, side: int) -> jax.Array:
    """The classes of all cells, in raster order, int32."""
    x = in_patches(images, side).astype(jnp.int32)
    weights = overlaps(side, self.cells)
    rows = jnp.sum(x[:, :, None] * weights[:, :, None, None], axis=3)  # (B, N, cells, P, 3)
    sums = jnp.sum(rows[:, :, :, None] * weights[:, :, None], axis=4)  # (B, N, cells, cells, 3)
    levels = sums // (WIDTH * side**2)
    classes = jnp.sum(levels * np.array([LEVELS**2, LEVELS, 1]), axis=-1)
    return classes.reshape(*classes.shape[:2], -1)

  def errors(self, predictions: jax.Array, targets: jax.Array) -> jax.Array:
    """The mean cross-entropy of the cells."""
    # With indices in place of ones, the gradient would be a scatter, which is slow on TPUs.
    ones = jax.nn.one_hot(targets, COLORS)
    return optax.losses.softmax_cross_entropy(self._logits(predictions), ones).mean(axis=-1)

  def scores(self, predictions: jax.Array, targets: jax.Array) -> jax.Array:
    """The fraction of the cells with the right class."""
    return jnp.mean(self._logits(predictions).argmax(axis=-1) == targets, axis=-1)

  def statistics(self, targets: jax.Array, mask: jax.Array) -> dict[str, jax.Array]:
    """How often each class occurs in each cell, (T, 512)."""
    hits = (targets[..., None] == jnp.arange(COLORS)) * mask[:, None, None, None]
    return {"counts": jnp.sum(hits, axis=(0, 1))}

  def constant_loss(self, statistics: dict[str, jax.Array]) -> jax.Array:
    """The entropy of the classes in a cell, nats; the mean over the cells."""
    counts = statistics["counts"]
    entropies = jax.scipy.special.entr(counts / counts.sum(axis=-1, keepdims=True))
    return entropies.sum(axis=-1).mean()

  def pictures(self, predictions: jax.Array, side: int) -> jax.Array:
    """Each cell, with every channel at the middle of its most probable level."""
    classes = self._logits(predictions).argmax(axis=-1)
    levels = jnp.stack([classes // LEVELS**2, classes // LEVELS % LEVELS, classes % LEVELS], -1)
    cells = (levels * WIDTH + WIDTH // 2).astype(jnp.uint8)
    cells = cells.reshape(*classes.shape[:2], self.cells, self.cells, 3)
    nearest = np.arange(side) * self.cells // side
    return cells[:, :, nearest][:, :, :, nearest]

  def _logits(self, predictions):
    return predictions.reshape(*predictions.shape[:2], self.cells**2, COLORS)


@dataclasses.dataclass(frozen=True)
class Pixels:
  """All pixels of a patch, in [-1, 1]; the loss is the mean of the squared errors."""

  least_side: ClassVar[int] = 1
  measure: ClassVar[str] = "squared_error"

  def outputs(self, side: int) -> int:
    """Every pixel, in three channels."""
    return 3 * side**2

  def of(self, images: jax.Array, side: int) -> jax.Array:
    """Rows, columns and channels of every patch in one axis, float32."""
    patches = in_patches(images, side)
    return normalize(patches.reshape(*patches.shape[:2], -1), jnp.float32)

  def errors(self, predictions: jax.Array, targets: jax.Array) -> jax.Array:
    """The mean squared error of a patch."""
    return jnp.mean((predictions - targets) ** 2, axis=-1)

  scores = errors

  def statistics(self, targets: jax.Array, mask: jax.Array) -> dict[str, jax.Array]:
    """The number of patches, and the sums of the pixels and of their squares, (T,)."""
    counts = mask[:, None, None] * jnp.ones_like(targets)
    sums = {"sum": targets * counts, "squares": targets**2 * counts, "count": counts}
    return {name: jnp.sum(x, axis=(0, 1)) for name, x in sums.items()}

  def constant_loss(self, statistics: dict[str, jax.Array]) -> jax.Array:
    """The variance of a pixel, which is the loss of the mean patch; the mean over the pixels."""
    count = statistics["count"]
    return jnp.mean(statistics["squares"] / count - (statistics["sum"] / count) ** 2)

  def pictures(self, predictions: jax.Array, side: int) -> jax.Array:
    """The predicted pixels, those out of range at the nearest end of it."""
    pixels = jnp.round(jnp.clip(predictions, -1, 1) * 127.5 + 127.5).astype(jnp.uint8)
    return pixels.reshape(*predictions.shape[:2], side, side, 3)


TARGETS: dict[str, Target] = {"mean_color": Colors(1), "down4": Colors(4), "pixels": Pixels()}


def in_patches(images: jax.Array, side: int) -> jax.Array:
  """Cuts images into patches, in raster order: (B, S, S, 3) -> (B, N, side, side, 3)."""
  batch, height, width, channels = images.shape
  x = images.reshape(batch, height // side, side, width // side, side, channels)
  return x.swapaxes(2, 3).reshape(batch, -1, side, side, channels)


def joined(patches: jax.Array, size: tuple[int, int]) -> jax.Array:
  """Puts patches together: (B, N, side, side, 3), in raster order -> (B, *size, 3)."""
  batch, _, side, _, channels = patches.shape
  height, width = size
  x = patches.reshape(batch, height // side, width // side, side, side, channels)
  return x.swapaxes(2, 3).reshape(batch, height, width, channels)


def overlaps(side: int, cells: int) -> np.ndarray:
  """The fraction of each pixel that lies in each cell, times `cells`: (cells, side) int32.

  Every row adds up to `side`, every column to `cells`.
  """
  pixel = np.arange(side) * cells
  cell = np.arange(cells)[:, None] * side
  overlap = np.minimum(pixel + cells, cell + side) - np.maximum(pixel, cell)
  return np.maximum(overlap, 0).astype(np.int32)
