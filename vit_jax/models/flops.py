"""Formulas for the cost of layers; `Network.macs` (vit_jax/models/family.py) adds them up."""

import math

import jax


def by_part(params: dict) -> dict[str, int]:
  """{name of a subtree at the top: its number of parameters}, for arrays or their shapes."""

  def size(subtree) -> int:
    return sum(math.prod(x.shape) for x in jax.tree.leaves(subtree))

  return {name: size(subtree) for name, subtree in params.items()}


def block_macs(tokens: int, width: int, mlp_dim: int, *, relative: bool) -> int:
  """Multiply-adds of an encoder block: attention, plus 2 T D M for the MLP."""
  return attention_macs(tokens, width, relative=relative) + 2 * tokens * width * mlp_dim


def attention_macs(tokens: int, width: int, *, relative: bool) -> int:
  """4 T D^2 for projections, 2 T^2 D for q k^T and the values, T (2 T - 1) D for relative keys."""
  offsets = (2 * tokens - 1) * relative
  return 4 * tokens * width**2 + 2 * tokens**2 * width + tokens * offsets * width


def resnet_macs(
  stages: tuple[int, ...], width: int, heads: int, height: int, columns: int
) -> tuple[int, int]:
  """The multiply-adds of root and stages, and the channels of the last stage's output.

  Args:
    stages: residual units of each stage.
    width: channels of the root.
    heads: not 0 if axial attention replaces the 3 x 3 convolutions.
    height, columns: of the image, pixels.
  """
  macs = _taps(height, 7, 2) * _taps(columns, 7, 2) * 3 * width
  h = _divided(_divided(height, 2), 2)  # by the root's convolution, then by its pooling
  w = _divided(_divided(columns, 2), 2)
  channels = width
  for stage, units in enumerate(stages):
    middle = width * 2**stage
    for unit in range(units):
      stride = 2 if unit == 0 and stage > 0 else 1
      macs += h * w * channels * middle
      if heads:
        macs += h * attention_macs(w, middle, relative=True)
        macs += w * attention_macs(h, middle, relative=True)
      else:
        macs += _taps(h, 3, stride) * _taps(w, 3, stride) * middle**2
      h = _divided(h, stride)
      w = _divided(w, stride)
      macs += h * w * middle * 4 * middle
      if unit == 0:
        macs += h * w * channels * 4 * middle  # the shortcut's projection
      channels = 4 * middle
  return macs, channels


def _divided(size: int, stride: int) -> int:
  """size / stride, rounded up."""
  return -(-size // stride)


def _taps(size: int, kernel: int, stride: int) -> int:
  """Products of a kernel along an axis, summed over its ceil(size / stride) places.

  Products with the `kernel // 2` zeros at each end do not count. "SAME" padding, which may have one
  zero less at one end, gives the same number.
  """
  starts = range(-(kernel // 2), size - kernel // 2, stride)
  return sum(min(start + kernel, size) - max(start, 0) for start in starts)


def training_flops(macs: int) -> int:
  """FLOPs of a training step for one image: 2 per multiply-add; backward costs twice forward."""
  return 6 * macs
