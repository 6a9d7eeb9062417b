"""The ResNet below the Transformer in hybrids (Section 3.1); each norm precedes its activation."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from vit_jax.models.convolution import (
  StandardizedConv,
  group_norm,
  standardize_bit,
  standardize_stem,
)
from vit_jax.models.layers import remat, split_by_example


class Norms(NamedTuple):
  """The normalisation in a ResNet below a Transformer.

  Attributes:
    standardize: standardises the weights of its convolutions.
    epsilon: of its GroupNorms.
  """

  standardize: Callable
  epsilon: float


# For the published weights (Section 4.1), and for timm's models. With the same weights, the logits
# of the two differ by 7e-5.
NORMS = {
  "published": Norms(standardize_stem, 1e-6),
  "timm": Norms(functools.partial(standardize_bit, epsilon=1e-8), 1e-5),
}


class StemUnit(nn.Module):
  """A bottleneck (1 x 1, 3 x 3 with the stride, 1 x 1 to 4 times the channels) plus its input."""

  channels: int
  stride: int
  norms: Norms
  dtype: jnp.dtype

  @nn.compact
  def __call__(self, x: jax.Array) -> jax.Array:
    """(B, H, W, C) -> (B, ceil(H / stride), ceil(W / stride), 4 channels)."""
    x = split_by_example(x)
    outputs = 4 * self.channels
    residual = x
    if x.shape[-1] != outputs or self.stride != 1:
      residual = _conv(outputs, 1, self.stride, self.norms, self.dtype, "conv_proj")(x)
      residual = group_norm(self.norms.epsilon, self.dtype, "gn_proj")(residual)
    y = _conv(self.channels, 1, 1, self.norms, self.dtype, "conv1")(x)
    y = nn.relu(group_norm(self.norms.epsilon, self.dtype, "gn1")(y))
    y = _conv(self.channels, 3, self.stride, self.norms, self.dtype, "conv2")(y)
    y = nn.relu(group_norm(self.norms.epsilon, self.dtype, "gn2")(y))
    y = _conv(outputs, 1, 1, self.norms, self.dtype, "conv3")(y)
    y = group_norm(self.norms.epsilon, self.dtype, "gn3", scale_init=nn.initializers.zeros)(y)
    return nn.relu(residual + y)


class StemStage(nn.Module):
  """Units of one resolution; the first has the stride."""

  units: int
  channels: int
  stride: int
  norms: Norms
  dtype: jnp.dtype
  remat: str

  @nn.compact
  def __call__(self, x: jax.Array) -> jax.Array:
    """(B, H, W, C) -> (B, ceil(H / stride), ceil(W / stride), 4 channels)."""
    unit = remat(StemUnit, self.remat)
    for i in range(self.units):
      stride = self.stride if i == 0 else 1
      x = unit(self.channels, stride, self.norms, self.dtype, name=f"unit{i + 1}")(x)
    return x


def stem(
  x: jax.Array, stages: tuple[int, ...], width: int, *, norms: Norms, dtype, policy: str
) -> jax.Array:
  """Root and stages, as submodules of the calling module under their published names.

  Args:
    x: images (B, H, W, 3).
    stages: units of each stage; () for only the root.
    width: channels of the root.
    norms: one of `NORMS`.
    dtype: type of the computation.
    policy: what the backward pass recomputes; see `layers.remat`.

  Returns:
    (B, h, w, C), with h and w by `convolution.map_size`.
  """
  x = _conv(width, 7, 2, norms, dtype, "conv_root")(x)
  x = nn.relu(group_norm(norms.epsilon, dtype, "gn_root")(x))
  x = nn.max_pool(x, window_shape=(3, 3), strides=(2, 2), padding="SAME")
  for i, units in enumerate(stages):
    stride = 1 if i == 0 else 2
    x = StemStage(units, width * 2**i, stride, norms, dtype, policy, name=f"block{i + 1}")(x)
  return x


def _conv(features, size, stride, norms, dtype, name):
  options = dict(dtype=dtype, name=name)
  return StandardizedConv(features, size, stride, "SAME", norms.standardize, **options)
