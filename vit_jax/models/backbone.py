"""The layers of ResNet (BiT) and of the axial ResNet, without the head.

It is a ResNet-v2: normalisation and activation come before each convolution. Parameters have the
names of BiT's published weights, except in GroupNorm (scale and bias here).
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from vit_jax.models.attention import Attention
from vit_jax.models.convolution import StandardizedConv, group_norm, standardize_bit
from vit_jax.models.layers import remat, split_by_example

EPSILON = 1e-5
PADDING = {1: 0, 3: 1, 7: 3}  # {kernel size: pixels on each side}


class Convolution(nn.Module):
  """A standardised convolution in a module of its own, as the published names have two levels."""

  features: int
  size: int
  stride: int
  dtype: jnp.dtype

  @nn.compact
  def __call__(self, x: jax.Array) -> jax.Array:
    """(B, H, W, C) -> (B, ceil(H / stride), ceil(W / stride), features)."""
    return _conv(self.features, self.size, self.stride, self.dtype)(x)


class PreActivated(nn.Module):
  """GroupNorm, ReLU, then a convolution, and if needed a projection for the unit's shortcut."""

  features: int
  size: int
  stride: int
  dtype: jnp.dtype
  projection: tuple[int, int] | None = None

  @nn.compact
  def __call__(self, x: jax.Array) -> tuple[jax.Array, jax.Array | None]:
    """(B, H, W, C) -> the outputs of the convolution and of `projection` (channels, stride)."""
    x = nn.relu(group_norm(EPSILON, self.dtype, "group_norm")(x))
    shortcut = None
    if self.projection:
      channels, stride = self.projection
      shortcut = Convolution(channels, 1, stride, self.dtype, name="proj")(x)
    return _conv(self.features, self.size, self.stride, self.dtype)(x), shortcut


class AxialAttention(nn.Module):
  """GroupNorm, ReLU, attention along rows, then along columns, then a mean over stride x stride.

  Both attentions have relative position embeddings. The module replaces a 3 x 3 convolution.
  """

  heads: int
  stride: int
  dtype: jnp.dtype
  attention: str

  @nn.compact
  def __call__(self, x: jax.Array) -> jax.Array:
    """(B, H, W, C) -> (B, ceil(H / stride), ceil(W / stride), C)."""
    x = nn.relu(group_norm(EPSILON, self.dtype, "group_norm")(x))
    for name in ("row_attention", "column_attention"):
      lines = x.reshape(-1, *x.shape[2:])
      lines = Attention(self.heads, self.dtype, self.attention, relative=True, name=name)(lines)
      # Swaps the axes for the next attention; after both, the order is the original one.
      x = lines.reshape(x.shape).swapaxes(1, 2)
    window = (self.stride, self.stride)
    return nn.avg_pool(
      x, window_shape=window, strides=window, padding="SAME", count_include_pad=False
    )


class Unit(nn.Module):
  """A bottleneck plus its input: 1 x 1, 3 x 3 with the stride, 1 x 1 to 4 times the channels.

  Attributes:
    channels: of the 3 x 3 convolution.
    stride: of the 3 x 3 convolution.
    heads: 0, or the heads of the axial attention in place of the 3 x 3 convolution.
    dtype, attention: as in `ResNet`.
  """

  channels: int
  stride: int
  heads: int
  dtype: jnp.dtype
  attention: str

  @nn.compact
  def __call__(self, x: jax.Array) -> jax.Array:
    """(B, H, W, C) -> (B, ceil(H / stride), ceil(W / stride), 4 channels)."""
    x = split_by_example(x)
    outputs = 4 * self.channels
    projection = None
    if x.shape[-1] != outputs or self.stride != 1:
      projection = (outputs, self.stride)
    y, shortcut = PreActivated(self.channels, 1, 1, self.dtype, projection, name="a")(x)
    if self.heads:
      y = AxialAttention(self.heads, self.stride, self.dtype, self.attention, name="b")(y)
    else:
      y, _ = PreActivated(self.channels, 3, self.stride, self.dtype, name="b")(y)
    y, _ = PreActivated(outputs, 1, 1, self.dtype, name="c")(y)
    if shortcut is None:
      shortcut = x
    return y + shortcut


class Stage(nn.Module):
  """Units of one resolution; the first has the stride."""

  units: int
  channels: int
  stride: int
  options: dict
  remat: str

  @nn.compact
  def __call__(self, x: jax.Array) -> jax.Array:
    """(B, H, W, C) -> (B, ceil(H / stride), ceil(W / stride), 4 channels)."""
    unit = remat(Unit, self.remat)
    for i in range(self.units):
      stride = self.stride if i == 0 else 1
      x = unit(self.channels, stride, **self.options, name=f"unit{i + 1:02d}")(x)
    return x


class Backbone(nn.Module):
  """The ResNet without the mean over the map and the head; the fields are those of `ResNet`."""

  stages: tuple[int, ...]
  width: int
  heads: int
  dtype: jnp.dtype
  attention: str
  remat: str

  @nn.compact
  def __call__(self, x: jax.Array) -> jax.Array:
    """(B, H, W, 3) -> (B, h, w, C), normalised and activated."""
    x = Convolution(self.width, 7, 2, self.dtype, name="root_block")(x)
    x = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))  # zeros, which can win in max pooling
    x = nn.max_pool(x, window_shape=(3, 3), strides=(2, 2))
    options = dict(heads=self.heads, dtype=self.dtype, attention=self.attention)
    for i, units in enumerate(self.stages):
      stride = 1 if i == 0 else 2
      channels = self.width * 2**i
      x = Stage(units, channels, stride, options, self.remat, name=f"block{i + 1}")(x)
    return nn.relu(group_norm(EPSILON, self.dtype, "group_norm")(x))


def _conv(features, size, stride, dtype):
  pad = PADDING[size]
  return StandardizedConv(
    features,
    size,
    stride,
    [(pad, pad), (pad, pad)],
    standardize_bit,
    dtype=dtype,
    name="standardized_conv2d",
  )
