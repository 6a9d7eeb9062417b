"""What the text of a compiled program tells: collectives, and cycles as the compiler counts."""

import collections
import math
import re

ENTRY = "ENTRY"  # the computation that a program begins with
COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
BITS = {"pred": 8, "bf16": 16, "f16": 16, "f32": 32, "f64": 64} | {
  f"{sign}{bits}": bits for sign in "su" for bits in (4, 8, 16, 32, 64)
}


def collectives(text: str) -> dict[str, tuple[int, int]]:
  """{kind: (count, bytes of the results)} of the collectives; those in a loop as often as it runs.

  Of one that is begun and ended apart the end counts, and instructions that share a channel, such
  as copies in fusions that run beside it, are one.
  """
  found = collections.defaultdict(dict)
  blocks = _blocks(text)
  for name, times in _times(blocks).items():
    for line in blocks[name].splitlines():
      match = re.search(rf"= (\S.*?) ({'|'.join(COLLECTIVES)})(-done)?\(", line)
      if match:
        channel = re.search(r"channel_id=(\d+)", line)
        found[match[2]][channel[1] if channel else line] = times, times * shape_bytes(match[1])
  return {kind: tuple(map(sum, zip(*each.values(), strict=True))) for kind, each in found.items()}


def shape_bytes(shapes: str) -> int:
  """Bytes of a shape, or of a tuple of shapes, as XLA prints them.

  Raises:
    ValueError: a type of numbers that is not known.
  """
  total = 0
  for kind, sizes in re.findall(r"\b([a-z]+\d\w*|pred)\[([\d,]*)\]", shapes):
    if kind not in BITS:
      raise ValueError(f"The size of {kind!r}, of {shapes}, is not known.")
    total += BITS[kind] * math.prod(int(n) for n in sizes.split(",") if n)
  return total // 8


def cycles(text: str) -> int | None:
  """Cycles of a TPU program by the compiler's count for each operation, one after another.

  What is inside a loop counts as often as the loop runs. Communication has no count. None: the
  compiler counted nothing, as that of CPUs and GPUs.
  """
  if '"estimated_cycles"' not in text:
    return None
  blocks = _blocks(text)
  counted = {ENTRY, *(body for block in blocks.values() for _, body in _loops(block))}
  return sum(
    times * sum(int(n) for n in re.findall(r'"estimated_cycles":"(\d+)"', blocks[name]))
    for name, times in _times(blocks).items()
    if name in counted  # what is called has its count where it is called
  )


def _blocks(text: str) -> dict[str, str]:
  """{name: instructions} of every computation of a program."""
  return dict(re.findall(r"^(ENTRY|%\S+) [^\n]*\{\n(.*?)^\}", text, re.M | re.S))


def _loops(block: str) -> list[tuple[str, str]]:
  """The loops in a block: (name of the condition, name of the body)."""
  return re.findall(r" while\(.*?condition=(%[^\s,]+), body=(%[^\s,]+)", block)


def _times(blocks: dict[str, str]) -> dict[str, int]:
  """{name: how often it runs} of each block that is reached from the program's entry."""
  times = collections.Counter()

  def visit(name, count):
    times[name] += count
    for called in re.findall(r" calls=(%[^\s,]+)", blocks[name]):
      visit(called, count)
    for condition, body in _loops(blocks[name]):
      visit(body, count * _rounds(blocks[condition]))

  visit(ENTRY, 1)
  return times


def _rounds(condition: str) -> int:
  """How often a loop runs whose condition compares a counter, from 0, with a constant.

  So do those of lax.scan, and those in which XLA overlaps a product with the gathering of a factor.
  """
  limits = re.findall(r"= [su]32\[\]\S* constant\((\d+)\)", condition)
  if len(limits) != 1 or "direction=LT" not in condition:
    raise ValueError(f"This loop does not count up to a constant:\n{condition}")
  return int(limits[0])
