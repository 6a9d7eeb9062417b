"""FLOPs and bytes of the instructions of a compiled program: what bounds their time."""

import re
from typing import NamedTuple

from vit_jax.devices.chips import Chip
from vit_jax.extras.compiled import matmuls, program_text
from vit_jax.extras.compiled.instructions import Instruction, Program

NOT_IN_HBM = re.compile(r"[a-z]\w*\[[\d,]*\]\{[^}]*S\([1-9]\d*\)\}")  # layout in another memory
WORKSPACE = re.compile(r", [su]8\[\d+\]\{0\}\)$")  # the last result of NVIDIA's libraries
TAKES_PARTS = ("dynamic-slice", "slice", "gather")  # of the first operand, as much as the result
RENAMES = ("bitcast", "get-tuple-element")


class Bound(NamedTuple):
  """The least work of an instruction.

  Attributes:
    flops: of its matmuls; other arithmetic is free here.
    moved: bytes that it reads from and writes to the device's memory, each array once, as if no
      cache kept what the instruction before has written.
  """

  flops: int
  moved: int

  def seconds(self, chip: Chip) -> float:
    """The least time: the matmuls at the peak rate, or the bytes at the memory's rate."""
    return max(self.flops / chip.peak_flops, self.moved / chip.hbm_bandwidth)


def of(program: Program, one: Instruction) -> Bound:
  """The bound of an instruction that takes time of its own."""
  multiplying = filter(matmuls.is_matmul, program.inside(one))
  flops = sum(matmuls.flops(program, each) for each in multiplying)
  return Bound(flops, moved_bytes(program, one))


def moved_bytes(program: Program, one: Instruction) -> int:
  """Bytes that an instruction reads from and writes to the device's memory.

  Of an array from which slices are taken, or whose slices are replaced, only the slices count.
  """
  return sum(_read(program, one, name) for name in set(one.operands)) + _written(program, one)


def _read(program: Program, one: Instruction, name: str) -> int:
  """Bytes of an operand that are read."""
  first = one.operands[0] == name
  if one.kind in TAKES_PARTS and first:
    return hbm_bytes(one.shape)
  if one.kind == "dynamic-update-slice" and first:
    return 0
  whole = hbm_bytes(program.named[name].shape)
  if not one.called:
    return whole
  block = program.blocks[one.called]
  inner = {each.number: each.name for each in block if each.kind == "parameter"}
  places = [i for i, operand in enumerate(one.operands) if operand == name]
  return min(whole, sum(_used(program, block, inner[place]) for place in places))


def _used(program: Program, block: list[Instruction], name: str) -> int:
  """Bytes of a value that the other instructions of its block read."""
  used = 0
  for each in block:
    if name in each.operands:
      if each.kind in RENAMES and not each.root:
        used += _used(program, block, each.name)
      else:
        used += _read(program, each, name)
  return used


def _written(program: Program, one: Instruction) -> int:
  """Bytes of the result that are written."""
  if one.kind == "dynamic-update-slice":
    return hbm_bytes(program.named[one.operands[1]].shape)
  if not one.called:
    return hbm_bytes(one.shape)
  result = program.result(one.called)
  names = result.operands if result.kind == "tuple" else [result.name]
  written = (_written(program, _computed(program, program.named[name])) for name in names)
  return min(hbm_bytes(one.shape), sum(written))


def _computed(program: Program, one: Instruction) -> Instruction:
  """The instruction that computes a value, before any bitcasts."""
  while one.kind == "bitcast":
    one = program.named[one.operands[0]]
  return one


def hbm_bytes(shape: str) -> int:
  """Bytes of a shape in the device's main memory, without scalars and arrays kept on the chip.

  The workspace of a GPU's libraries is not counted either.
  """
  return program_text.shape_bytes(NOT_IN_HBM.sub("", WORKSPACE.sub(")", shape)))
