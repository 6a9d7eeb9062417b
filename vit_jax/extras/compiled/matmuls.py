"""FLOPs of matmuls and convolutions in a compiled program, however written."""

import math
import re

import numpy as np

from vit_jax.extras.compiled.instructions import Instruction, Program


def is_matmul(one: Instruction) -> bool:
  """Whether an instruction multiplies matrices, or is a convolution or cuDNN's attention."""
  return one.kind in ("convolution", "dot") or one.target.startswith(("__cublas$", "__cudnn$"))


def flops(program: Program, one: Instruction) -> int:
  """2 for each pair of numbers that it multiplies; pairs with padding do not count.

  Raises:
    ValueError: an operation of this kind is not known.
  """
  if one.kind == "dot" or one.target.startswith(("__cublas$gemm", "__cublas$lt$matmul")):
    return _of_matrices(program, one)
  if one.target.startswith("__cudnn$fmha"):
    return _of_attention(program, one)
  if one.kind == "convolution" or one.target.startswith("__cudnn$conv"):
    return _of_convolution(program, one)
  raise ValueError(f"The FLOPs of {one.kind} {one.target} are not known.")


def _of_matrices(program: Program, one: Instruction) -> int:
  """The FLOPs of a matmul: for each number of the result, the product of the summed sizes."""
  summed = one.attribute(r'lhs_contracting_dim(?:ension)?s"?[=:][\[{]([^\]}]*)[\]}]')
  sizes = sizes_of(program.named[one.operands[0]].shape)
  axes = [int(axis) for axis in re.findall(r"\d+", summed)]
  return 2 * math.prod(sizes_of(one.shape)) * math.prod(sizes[axis] for axis in axes)


def _of_attention(program: Program, one: Instruction) -> int:
  """The FLOPs of cuDNN's attention; its first operands are queries and keys, (B, N, heads, D_h)."""
  of_queries, of_keys = (sizes_of(program.named[name].shape) for name in one.operands[:2])
  batch, queries, heads, channels = of_queries
  keys = of_keys[1]
  matmuls = 5 if "Backward" in one.target else 2
  return matmuls * 2 * batch * heads * queries * keys * channels


def _of_convolution(program: Program, one: Instruction) -> int:
  """The FLOPs of a convolution. Axes may have a window, with padding, strides and dilations.

  The TPU's compiler writes every matmul as one: dimensions of one operand alone, or of both, are
  then those of a window that leaves one multiplication for each place. cuDNN's gradients are
  written with the labels and the window of the forward convolution.
  """
  shapes = [sizes_of(program.named[name].shape) for name in one.operands[:2]]
  shapes.append(sizes_of(one.shape))
  order = {"__cudnn$convBackwardInput": (2, 1, 0), "__cudnn$convBackwardFilter": (0, 2, 1)}
  labels = re.search(r"dim_labels=(\w+)_(\w+)->(\w+)", one.rest).groups()
  image, kernel, result = (
    dict(zip(label, shapes[at], strict=True))
    for label, at in zip(labels, order.get(one.target, (0, 1, 2)), strict=True)
  )
  window = dict(re.findall(r"(\w+)=([\dx_-]+)", one.attribute(r"window=\{([^}]*)\}") or ""))
  total = 2 * result["b"] * result["f"] * kernel["i"]
  for axis in sorted(set(image) - {"b", "f"}):
    total *= _places(image[axis], kernel[axis], result[axis], window, int(axis))
  return total


def _places(size: int, kernel: int, results: int, window: dict[str, str], axis: int) -> int:
  """The number of pairs (result, place in the kernel) along an axis that meet a number."""

  def along_axis(key: str, default: str) -> str:
    if key not in window:
      return default
    return window[key].split("x")[axis]

  low = int(along_axis("pad", "0_0").partition("_")[0])
  dilation = int(along_axis("lhs_dilate", "1"))
  begins = np.arange(results)[:, None] * int(along_axis("stride", "1")) - low
  met = begins + np.arange(kernel) * int(along_axis("rhs_dilate", "1"))
  return int(((met >= 0) & (met <= (size - 1) * dilation) & (met % dilation == 0)).sum())


def sizes_of(shape: str) -> list[int]:
  """The sizes of an array; if there are several, those of the first."""
  return [int(n) for n in re.search(r"\[([\d,]*)\]", shape)[1].split(",") if n]
