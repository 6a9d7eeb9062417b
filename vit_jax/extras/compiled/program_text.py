"""Reads the text of a compiled program: collectives, and the compiler's counts of cycles."""

import collections
import math
import re

ENTRY = "ENTRY"  # the computation that a program begins with
CYCLES = r'"estimated_cycles":"(\d+)"'
COLLECTIVES = (
  *("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute"),
  *("collective-broadcast", "ragged-all-to-all"),
)
BITS = {"pred": 8, "bf16": 16, "f16": 16, "f32": 32, "f64": 64} | {
  f"{sign}{bits}": bits for sign in "su" for bits in (4, 8, 16, 32, 64)
}


def collectives(text: str) -> dict[str, tuple[int, int]]:
  """{kind: (count, bytes of the results)} of the collectives; in a loop, once per iteration.

  If a collective has separate start and done instructions, only the done one counts. Instructions
  with the same channel, such as those in concurrent fusions, count as one collective, which runs as
  often as the least frequent of them. An all-reduce that is fused with slices of its results is a
  reduce-scatter; all those of several arrays have one channel, and each counts.
  """
  by_kind = collections.defaultdict(dict)
  blocks = computations(text)
  for name, times in runs(blocks).items():
    for line in blocks[name].splitlines():
      match = re.search(rf"= (\S.*?) ({'|'.join(COLLECTIVES)})(-done)?\(", line)
      if not match:
        continue
      kind = match[2]
      size = shape_bytes(match[1])
      key = line
      if channel := re.search(r"channel_id=(\d+)", line):
        key = channel[1]
      if name.startswith("%all-reduce-scatter"):
        kept = _result(blocks[name])
        kind = "reduce-scatter"
        size = shape_bytes(kept)
        if kept.startswith("("):
          key = name
      before, _ = by_kind[kind].get(key, (times, size))
      by_kind[kind][key] = min(times, before), size
  return {
    kind: (sum(n for n, _ in each.values()), sum(n * size for n, size in each.values()))
    for kind, each in by_kind.items()
  }


def shape_bytes(shapes: str) -> int:
  """Bytes of a shape, or of a tuple of shapes, as XLA prints them.

  Raises:
    ValueError: the type of the numbers is not known.
  """
  total = 0
  for kind, sizes in re.findall(r"\b([a-z]+\d\w*|pred)\[([\d,]*)\]", shapes):
    if kind not in BITS:
      raise ValueError(f"The size of {kind!r}, of {shapes}, is not known.")
    total += BITS[kind] * math.prod(int(n) for n in sizes.split(",") if n)
  return total // 8


def cycles(text: str) -> int | None:
  """Cycles of a TPU program: the sum of the compiler's counts for the operations.

  Operations in a loop count once per iteration. Communication is not counted. None if the compiler
  counts no cycles, as on CPUs and GPUs.
  """
  if '"estimated_cycles"' not in text:
    return None
  blocks = computations(text)
  return sum(
    times * sum(int(n) for n in re.findall(CYCLES, blocks[name]))
    for name, times in counted(blocks).items()
  )


def counted(blocks: dict[str, str]) -> dict[str, int]:
  """{name: number of runs} of the blocks whose instructions count: the entry, bodies of loops.

  A called computation is counted at the instruction that calls it.
  """
  counting = {ENTRY, *(body for block in blocks.values() for _, body, _ in _loops(block))}
  return {name: times for name, times in runs(blocks).items() if name in counting}


def computations(text: str) -> dict[str, str]:
  """{name: instructions} of every computation of a program."""
  return dict(re.findall(r"^(ENTRY|%\S+) [^\n]*\{\n(.*?)^\}", text, re.M | re.S))


def _result(block: str) -> str:
  """The shape of a block's result, or of all its results."""
  return re.search(r"ROOT \S+ = (.*?) [a-z][\w-]*\(", block)[1]


def _loops(block: str) -> list[tuple[str, str, int | None]]:
  """The loops in a block: (name of the condition, name of the body, its runs if the text tells)."""
  found = re.findall(r" while\(.*?condition=(%[^\s,]+), body=(%[^\s,]+)(.*)", block)
  return [(condition, body, _known_rounds(rest)) for condition, body, rest in found]


def _known_rounds(rest: str) -> int | None:
  """The number of iterations that the text of a loop tells; None if it does not."""
  match = re.search(r'"known_trip_count":\{"n":"(\d+)"', rest)
  return match and int(match[1])


def runs(blocks: dict[str, str]) -> dict[str, int]:
  """{name: number of runs} of each block that the program's entry reaches."""
  times = collections.Counter()

  def visit(name, count):
    times[name] += count
    for called in re.findall(r" calls=(%[^\s,]+)", blocks[name]):
      visit(called, count)
    for condition, body, rounds in _loops(blocks[name]):
      visit(body, count * (rounds or _rounds(blocks[condition], blocks[body])))

  visit(ENTRY, 1)
  return times


def _rounds(condition: str, body: str) -> int:
  """The number of iterations of a loop that counts from 0 up to a constant.

  The loops of lax.scan count by one. Loops in which XLA overlaps a matmul with the gathering of a
  factor count by the number that the body adds. A loop whose condition computes with fractions,
  such as the rejection sampling of MixUp's share, is assumed to run once.

  Raises:
    ValueError: the loop is of another kind.
  """
  if re.search(r" = f32\[", condition):
    return 1
  compared = re.search(r"ROOT .* compare\((%\S+), (%\S+)\), direction=LT", condition)
  counter = compared and _index(condition, compared[1])
  limit = compared and _constant(condition, compared[2])
  if counter is None or limit is None:
    raise ValueError(f"This loop does not count up to a constant:\n{condition}")
  operands = re.search(r"ROOT .* tuple\((.*?)\)", body)[1]
  following = re.sub(r"/\*.*?\*/", "", operands).split(", ")[counter]
  added = re.search(rf"{re.escape(following)} = \S+ add\(%\S+, (%\S+)\)", body)
  return -(-limit // ((added and _constant(body, added[1])) or 1))


def _index(block: str, name: str) -> int | None:
  """The index of the tuple element that an instruction reads; None for other instructions."""
  match = re.search(rf"{re.escape(name)} = \S+ get-tuple-element\(.*?\), index=(\d+)", block)
  return match and int(match[1])


def _constant(block: str, name: str) -> int | None:
  """The value of an integer constant; None for other instructions."""
  match = re.search(rf"{re.escape(name)} = [su]32\[\]\S* constant\((\d+)\)", block)
  return match and int(match[1])
