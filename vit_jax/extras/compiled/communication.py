"""The bytes that the GPUs of a compiled step send to one another, within and between machines."""

import re
from typing import NamedTuple

import numpy as np

from vit_jax.devices.chips import Chip
from vit_jax.extras.compiled import program_text
from vit_jax.extras.compiled.instructions import Instruction, Program

Groups = list[list[int]]
# How often a ring sends the whole array, except one GPU's share.
PASSES = {"all-reduce": 2, "all-gather": 1, "reduce-scatter": 1, "all-to-all": 1}
OF_MESH = r"replica_groups=mesh\[(.*?)\](?:, device_ids=\((.*?)\))? \{(.*?)\}"


class Traffic(NamedTuple):
  """Bytes that one GPU sends in one step.

  Rings send them: first within each machine, then each GPU's share between the machines, then
  within each machine again.

  Attributes:
    link_bytes: to other GPUs of its machine.
    network_bytes: to other machines.
  """

  link_bytes: float = 0.0
  network_bytes: float = 0.0

  def seconds(self, chip: Chip) -> tuple[float, float | None]:
    """The times at the rates of `Chip`, of which a step may hide either; None: no rate is known."""
    local = self.link_bytes / chip.link_bandwidth
    if not self.network_bytes:
      return local, 0.0
    return local, chip.network_bandwidth and self.network_bytes / chip.network_bandwidth


def traffic(text: str, machines: int, gpus: int) -> Traffic:
  """The traffic of a step.

  Args:
    text: of a compiled program.
    machines: number of machines.
    gpus: of one machine.

  Raises:
    ValueError: a collective or its groups are of a kind that is not known.
  """
  program = Program(text)
  total = np.zeros(2)
  for block, times in program_text.runs(program_text.computations(text)).items():
    for one in program.blocks[block]:
      kind = one.kind.removesuffix("-done")
      if kind in program_text.COLLECTIVES:
        begun = one
        if one.kind != kind:
          begun = program.named[one.operands[0]]
        groups = _groups(begun, machines * gpus)
        total += times * np.array(_sent(kind, groups, one, gpus))
  return Traffic(*map(float, total))


def _sent(kind: str, groups: Groups, one: Instruction, gpus: int) -> Traffic:
  """The traffic of one GPU in one collective, whose groups all have one shape."""
  size = program_text.shape_bytes(one.shape)
  group = groups[0]
  if kind == "collective-permute":
    if any(a // gpus != b // gpus for a, b in groups):
      return Traffic(network_bytes=size)
    return Traffic(link_bytes=size)
  if kind not in PASSES:
    raise ValueError(f"What a {kind} sends is not known.")
  machines = len({device // gpus for device in group})
  local = len(group) // machines
  whole = size * len(group) if kind == "reduce-scatter" else size
  within = 1 - 1 / local
  between = (1 - 1 / machines) / local
  if kind == "all-to-all":
    return Traffic(whole * (local - 1) / len(group), whole * (1 - 1 / machines))
  return Traffic(PASSES[kind] * whole * within, PASSES[kind] * whole * between)


def _groups(one: Instruction, devices: int) -> Groups:
  """The groups of devices that take part in a collective; for a permutation, the pairs.

  Raises:
    ValueError: they are written in an unknown way.
  """
  if listed := re.search(r"(?:replica_groups|source_target_pairs)=\{(\{.*?\})\}", one.rest):
    return [[int(n) for n in group.split(",")] for group in re.findall(r"\{([\d,]+)\}", listed[1])]
  if "replica_groups={}" in one.rest:  # all of them
    return [list(range(devices))]
  if named := re.search(OF_MESH, one.rest):
    return _of_mesh(*named.groups())
  if counted := re.search(r"replica_groups=(\[[\d,]+\])<=(\[[\d,]+\](?:T\([\d,]+\))?)", one.rest):
    return _numbered(counted[2]).reshape(_numbers(counted[1])).tolist()
  raise ValueError(f"The groups of this collective are written in an unknown way: {one.rest}")


def _of_mesh(axes: str, order: str | None, grouped: str) -> Groups:
  """Groups along some axes of a mesh."""
  if "(" in grouped:
    raise ValueError(f"Groups along a part of an axis are not known: {grouped}")
  names, sizes = zip(*re.findall(r"'(\w+)'=(\d+)", axes), strict=True)
  sizes = [int(size) for size in sizes]
  if order:
    devices = _numbered(order)
  else:
    devices = np.arange(np.prod(sizes))
  mesh = devices.reshape(sizes)
  last = [names.index(name) for name in re.findall(r"'(\w+)'", grouped)]
  mesh = np.moveaxis(mesh, last, range(-len(last), 0))
  return mesh.reshape(-1, int(np.prod([sizes[axis] for axis in last]))).tolist()


def _numbered(order: str) -> np.ndarray:
  """Numbers in the order of a text such as "[4,2]T(1,0)": 0 to 7 as 4 rows, then transposed."""
  shape, _, permutation = order.partition("T")
  sizes = _numbers(shape)
  numbers = np.arange(np.prod(sizes)).reshape(sizes)
  if permutation:
    return numbers.transpose(_numbers(permutation))
  return numbers


def _numbers(text: str) -> list[int]:
  """The whole numbers in a text."""
  return [int(n) for n in re.findall(r"\d+", text)]
