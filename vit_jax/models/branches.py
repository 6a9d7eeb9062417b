"""LayerScale and stochastic depth of the residual branches, which the paper does not have."""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

# Where LayerScale may be left out: the names of the LayerScales that a model has not.
UNSCALED = {"both": (), "attention": ("LayerScale_3",)}


@dataclasses.dataclass(frozen=True)
class Branches:
  """The options of all residual branches of a model; the fields are those of `ViT`."""

  layer_scale: bool = False
  layer_scale_place: str = "both"
  layer_scale_init: float = 1e-4
  stochastic_depth: float = 0.0
  stochastic_depth_rule: str = "linear"

  def rates(self, depth: int) -> np.ndarray | None:
    """The rate of stochastic depth of each of `depth` blocks, (depth,) float32; None: all are 0.

    "linear": from 0 in the first block to `stochastic_depth` in the last one (Huang et al., "Deep
    networks with stochastic depth", 2016, equation 4, with blocks counted from 0 to depth - 1 as in
    timm and in Steiner et al., 2021). "uniform": the same in all blocks (as in DeiT III).
    """
    if not self.stochastic_depth:
      return None
    if self.stochastic_depth_rule == "uniform":
      return np.full(depth, self.stochastic_depth, np.float32)
    return np.linspace(0, self.stochastic_depth, depth, dtype=np.float32)

  def applied(self, y: jax.Array, name: str, rate, *, train: bool) -> jax.Array:
    """The output (B, N, D) of a branch as it is added to the block's input.

    Call it from a compact method: its parameters belong to the calling module.

    Args:
      y: the output of the branch.
      name: of the LayerScale.
      rate: of stochastic depth, a scalar; None: 0.
      train: whether to use stochastic depth, which needs an rng named "dropout".
    """
    if self.layer_scale and name not in UNSCALED[self.layer_scale_place]:
      y = LayerScale(self.layer_scale_init, name=name)(y)
    if rate is None or not train:
      return y
    return StochasticDepth()(y, rate)


class LayerScale(nn.Module):
  """s y, with a learned factor s for each channel (Touvron et al., "Going deeper with image
  transformers", 2021, Section 2).

  Attributes:
    initial: initial value of every factor.
  """

  initial: float

  @nn.compact
  def __call__(self, y: jax.Array) -> jax.Array:
    """(B, N, D) -> (B, N, D)."""
    scale = self.param("scale", nn.initializers.constant(self.initial), (y.shape[-1],))
    return y * scale.astype(y.dtype)


class StochasticDepth(nn.Module):
  """b y / (1 - p): b is 0 with probability p, the rate, and else 1, drawn for each image.

  Source: Huang et al., 2016. There the sum is not scaled in training, and multiplied by 1 - p in
  evaluation; scaling in training instead has the same mean, and is what timm does.
  """

  @nn.compact
  def __call__(self, y: jax.Array, rate: jax.Array) -> jax.Array:
    """(B, N, D) and a scalar below 1 -> (B, N, D)."""
    shape = (y.shape[0], *[1] * (y.ndim - 1))
    kept = jax.random.bernoulli(self.make_rng("dropout"), 1 - rate, shape)
    scaled = (y.astype(jnp.float32) / (1 - rate)).astype(y.dtype)
    return jnp.where(kept, scaled, 0)
