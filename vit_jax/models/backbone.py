"""The layers of ResNet (BiT) and of the axial ResNet, without the head.

It is a ResNet-v2: normalisation and activation come before each convolution. Parameters have the
names of BiT's published weights, except in GroupNorm (scale and bias here).
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from vit_jax.models.attention import Attention
from vit_jax.models.convolution import StandardizedConv, as_it_is, group_norm, standardize_bit
from vit_jax.models.layers import remat, split_by_example

EPSILON = 1e-5
# How kernels are standardised: in BiT, and not at all in ResNet-D.
KINDS = {"bit": standardize_bit, "d": as_it_is}
PADDING = {1: 0, 3: 1, 7: 3}  # {kernel size: pixels on each side}


class Convolution(nn.Module):
  """A standardised convolution in a module of its own, as the published names have two levels."""

  features: int
  size: int
  stride: int
  dtype: jnp.dtype
  kind: str = "bit"

  @nn.compact
  def __call__(self, x: jax.Array) -> jax.Array:
    """(B, H, W, C) -> (B, ceil(H / stride), ceil(W / stride), features)."""
    return _conv(self.features, self.size, self.stride, self.dtype, self.kind)(x)


class DeepRoot(nn.Module):
  """Three 3 x 3 convolutions for one of 7 x 7, with GroupNorm and ReLU between (ResNet-D).

  Source: He et al., "Bag of tricks for image classification with convolutional neural networks",
  2019 (arXiv 1812.01187, Section 4.1).
  """

  features: int
  dtype: jnp.dtype

  @nn.compact
  def __call__(self, x: jax.Array) -> jax.Array:
    """(B, H, W, C) -> (B, ceil(H / 2), ceil(W / 2), features)."""
    half = self.features // 2
    for i, (features, stride) in enumerate([(half, 2), (half, 1), (self.features, 1)], start=1):
      if i > 1:
        x = nn.relu(group_norm(EPSILON, self.dtype, f"norm{i - 1}")(x))
      x = Convolution(features, 3, stride, self.dtype, "d", name=f"conv{i}")(x)
    return x


class PreActivated(nn.Module):
  """GroupNorm, ReLU, then a convolution, and if needed a projection for the unit's shortcut."""

  features: int
  size: int
  stride: int
  dtype: jnp.dtype
  kind: str = "bit"
  projection: tuple[int, int] | None = None

  @nn.compact
  def __call__(self, x: jax.Array) -> tuple[jax.Array, jax.Array | None]:
    """(B, H, W, C) -> the outputs of the convolution and of `projection` (channels, stride)."""
    x = nn.relu(group_norm(EPSILON, self.dtype, "group_norm")(x))
    shortcut = None
    if self.projection:
      channels, stride = self.projection
      shortcut = x
      if self.kind == "d":  # a mean loses no position, as a stride would
        shortcut = mean_pool(x, stride)
        stride = 1
      shortcut = Convolution(channels, 1, stride, self.dtype, self.kind, name="proj")(shortcut)
    return _conv(self.features, self.size, self.stride, self.dtype, self.kind)(x), shortcut


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
    return mean_pool(x, self.stride)


def mean_pool(x: jax.Array, stride: int) -> jax.Array:
  """(B, H, W, C) -> (B, ceil(H / stride), ceil(W / stride), C), means over stride x stride."""
  window = (stride, stride)
  y = nn.avg_pool(x, window_shape=window, strides=window, padding="SAME", count_include_pad=False)
  return y.astype(x.dtype)  # divided by counts in float32


class Unit(nn.Module):
  """A bottleneck plus its input: 1 x 1, 3 x 3 with the stride, 1 x 1 to 4 times the channels.

  Attributes:
    channels: of the 3 x 3 convolution.
    stride: of the 3 x 3 convolution.
    heads: 0, or the heads of the axial attention in place of the 3 x 3 convolution.
    dtype, attention, kind: as in `ResNet`.
  """

  channels: int
  stride: int
  heads: int
  dtype: jnp.dtype
  attention: str
  kind: str = "bit"

  @nn.compact
  def __call__(self, x: jax.Array) -> jax.Array:
    """(B, H, W, C) -> (B, ceil(H / stride), ceil(W / stride), 4 channels)."""
    x = split_by_example(x)
    outputs = 4 * self.channels
    projection = None
    if x.shape[-1] != outputs or self.stride != 1:
      projection = (outputs, self.stride)
    first = PreActivated(self.channels, 1, 1, self.dtype, self.kind, projection, name="a")
    y, shortcut = first(x)
    if self.heads:
      y = AxialAttention(self.heads, self.stride, self.dtype, self.attention, name="b")(y)
    else:
      y, _ = PreActivated(self.channels, 3, self.stride, self.dtype, self.kind, name="b")(y)
    y, _ = PreActivated(outputs, 1, 1, self.dtype, self.kind, name="c")(y)
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
  kind: str = "bit"

  @nn.compact
  def __call__(self, x: jax.Array) -> jax.Array:
    """(B, H, W, 3) -> (B, h, w, C), normalised and activated."""
    if self.kind == "d":
      x = DeepRoot(self.width, self.dtype, name="root_block")(x)
      x = nn.max_pool(x, window_shape=(3, 3), strides=(2, 2), padding=((1, 1), (1, 1)))
    else:
      x = Convolution(self.width, 7, 2, self.dtype, name="root_block")(x)
      x = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))  # zeros, which can win in max pooling
      x = nn.max_pool(x, window_shape=(3, 3), strides=(2, 2))
    options = dict(heads=self.heads, dtype=self.dtype, attention=self.attention, kind=self.kind)
    for i, units in enumerate(self.stages):
      stride = 1 if i == 0 else 2
      channels = self.width * 2**i
      x = Stage(units, channels, stride, options, self.remat, name=f"block{i + 1}")(x)
    return nn.relu(group_norm(EPSILON, self.dtype, "group_norm")(x))


def _conv(features, size, stride, dtype, kind):
  pad = PADDING[size]
  return StandardizedConv(
    features,
    size,
    stride,
    [(pad, pad), (pad, pad)],
    KINDS[kind],
    dtype=dtype,
    name="standardized_conv2d",
  )
