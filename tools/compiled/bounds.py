"""FLOPs and bytes of the instructions of a compiled program: what bounds their time."""

import re

import numpy as np

from compiled import program_text
from compiled.instructions import Instruction, Program
from vit_jax.devices.chips import Chip

NOT_IN_HBM = re.compile(r"[a-z]\w*\[[\d,]*\]\{[^}]*S\([1-9]\d*\)\}")  # layout in another memory


def seconds(program: Program, one: Instruction, chip: Chip) -> float:
  """The least time of an instruction that has cycles of its own.

  The larger of its products at the peak rate and its bytes at the memory's rate. Other arithmetic
  is free here, and so is what stays in the memory on the chip.
  """
  products = (each for each in program.inside(one) if each.kind == "convolution")
  flops = sum(convolution_flops(program, each) for each in products)
  return max(flops / chip.peak_flops, moved_bytes(program, one) / chip.hbm_bandwidth)


def convolution_flops(program: Program, one: Instruction) -> int:
  """2 for each product of two numbers; products with padding do not count.

  The TPU's compiler writes every product of matrices as a convolution. Dimensions of one operand
  alone, or of both, may be those of a window, with strides and dilations that leave one product for
  each place.
  """
  left, right = (_sizes(program.named[name].shape) for name in one.operands[:2])
  labels = re.search(r"dim_labels=(\w+)_(\w+)->(\w+)", one.rest).groups()
  image, kernel, result = (
    dict(zip(label, sizes, strict=True))
    for label, sizes in zip(labels, (left, right, _sizes(one.shape)), strict=True)
  )
  window = dict(re.findall(r"(\w+)=([\dx_-]+)", one.attribute(r"window=\{([^}]*)\}") or ""))
  flops = 2 * result["b"] * result["f"] * kernel["i"]
  for axis in sorted(set(image) - {"b", "f"}):
    flops *= _places(image[axis], kernel[axis], result[axis], window, int(axis))
  return flops


def _places(size: int, kernel: int, results: int, window: dict[str, str], axis: int) -> int:
  """The number of pairs (result, place in the kernel) along an axis that meet a number."""
  of = lambda key, default: window[key].split("x")[axis] if key in window else default
  low = int(of("pad", "0_0").partition("_")[0])
  dilation = int(of("lhs_dilate", 1))
  begins = np.arange(results)[:, None] * int(of("stride", 1)) - low
  met = begins + np.arange(kernel) * int(of("rhs_dilate", 1))
  return int(((met >= 0) & (met <= (size - 1) * dilation) & (met % dilation == 0)).sum())


def moved_bytes(program: Program, one: Instruction) -> int:
  """Bytes that an instruction reads from and writes to the device's memory.

  Of an array from which slices are taken, or whose slices are replaced, only the slices count.
  """
  return sum(_read(program, one, name) for name in one.operands) + _written(program, one)


def _read(program: Program, one: Instruction, name: str) -> int:
  """Bytes of an operand that are read."""
  first = one.operands[0] == name
  if one.kind == "dynamic-slice" and first:
    return hbm_bytes(one.shape)
  if one.kind == "dynamic-update-slice" and first:
    return 0
  whole = hbm_bytes(program.named[name].shape)
  if not one.called:
    return whole
  block = program.blocks[one.called]
  inner = {each.number: each.name for each in block if each.kind == "parameter"}
  parameter = inner[one.operands.index(name)]
  readers = [each for each in block if parameter in each.operands]
  return min(whole, sum(_read(program, each, parameter) for each in readers))


def _written(program: Program, one: Instruction) -> int:
  """Bytes of the result that are written."""
  if one.kind == "dynamic-update-slice":
    return hbm_bytes(program.named[one.operands[1]].shape)
  if not one.called:
    return hbm_bytes(one.shape)
  result = program.result(one.called)
  if result.kind != "tuple":
    return min(hbm_bytes(one.shape), _written(program, result))
  parts = (program.named[name] for name in result.operands)
  return min(hbm_bytes(one.shape), sum(_written(program, part) for part in parts))


def hbm_bytes(shape: str) -> int:
  """Bytes of a shape in the device's main memory; scalars and arrays kept on the chip are not."""
  return program_text.shape_bytes(NOT_IN_HBM.sub("", shape))


def _sizes(shape: str) -> list[int]:
  """The sizes of an array."""
  return [int(n) for n in re.search(r"\[([\d,]*)\]", shape)[1].split(",") if n]
