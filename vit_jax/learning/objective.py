"""What a run learns, as the training step sees it.

The step knows an objective and nothing of labels, losses or models. `vit_jax.learning.objectives`
has those that there are.
"""

from typing import NamedTuple, Protocol

import jax

PREFIX = "train/"  # of an objective's metrics in metrics.jsonl


class Sums(NamedTuple):
  """What is added up over the examples of a batch, or of a part of it.

  The sums of all parts, on all devices, add up to those of the whole batch.

  Attributes:
    loss: scalar, sum of the losses of the examples that count.
    count: scalar, how many examples count.
    metrics: {name: (sum, count)}, two scalars each. A metric is its sum by its own count over the
      whole batch, and is not a number where that count is 0. It is logged as train/NAME.
  """

  loss: jax.Array
  count: jax.Array
  metrics: dict[str, tuple[jax.Array, jax.Array]]


class Objective(Protocol):
  """What a run learns.

  Attributes:
    needs_labels: whether a batch holds labels.
  """

  needs_labels: bool

  def init(self, key: jax.Array, image_size: int) -> dict:
    """Fresh parameters, float32, for square images of `image_size` pixels; traceable."""
    ...

  def prepare(self, batch: dict, key: jax.Array) -> dict:
    """The whole batch, before accumulation divides it, with what its examples share or draw.

    Args:
      batch: image (B, S, S, 3) uint8; mask (B,) float32, 0 for broken images; and, if
        `needs_labels`, labels, (B,) int32 or (B, K) uint8 indicators.
      key: of the step.

    Returns:
      A dict of arrays whose first axis is the batch's. A draw for each example is made here: what
      `loss` draws depends on how the batch is divided.
    """
    ...

  def loss(self, params: dict, batch: dict, key: jax.Array) -> Sums:
    """The sums over a part of a prepared batch, differentiable in `params`.

    Args:
      params: as `init` made them.
      batch: some rows of what `prepare` returned. Rows with mask 0 count for nothing.
      key: of the part: that of the step, or with the number of the part folded in.
    """
    ...

  def training_flops(self, image_size: int) -> int:
    """FLOPs of one image's share of an update, forward and backward, where all is trained."""
    ...
