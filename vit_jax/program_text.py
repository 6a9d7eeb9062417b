"""What the text of a compiled program tells: collectives, and cycles as the compiler counts."""

import collections
import math
import re

COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
BYTES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s32": 4, "u32": 4, "f32": 4}


def collectives(text: str) -> dict[str, tuple[int, int]]:
  """{kind: (count, bytes of the results)} of the collectives; those inside a loop count once."""
  kinds = "|".join(COLLECTIVES)
  found = collections.defaultdict(lambda: (0, 0))
  for match in re.finditer(rf"= (\S.*?) ({kinds})(?:-start)?\(", text):
    count, size = found[match[2]]
    found[match[2]] = (count + 1, size + shape_bytes(match[1]))
  return dict(found)


def shape_bytes(shapes: str) -> int:
  """Bytes of a shape, or of a tuple of shapes, as XLA prints them."""
  return sum(
    BYTES[kind] * math.prod(int(n) for n in sizes.split(",") if n)
    for kind, sizes in re.findall(r"\b([a-z]+\d*)\[([\d,]*)\]", shapes)
  )


def cycles(text: str) -> int | None:
  """Cycles of a TPU program by the compiler's count for each operation, one after another.

  What is inside a loop counts as often as the loop runs. Communication has no count. None: the
  compiler counted nothing, as that of CPUs and GPUs.
  """
  if '"estimated_cycles"' not in text:
    return None
  blocks = dict(re.findall(r"^(?:ENTRY )?(%\S+) [^\n]*\{\n(.*?)^\}", text, re.M | re.S))
  entry = re.search(r"^ENTRY (%\S+) ", text, re.M)[1]

  def total(name: str) -> int:
    own = sum(int(n) for n in re.findall(r'"estimated_cycles":"(\d+)"', blocks[name]))
    loops = re.findall(r" while\(.*?condition=(%[^\s,]+), body=(%[^\s,]+)", blocks[name])
    return own + sum(_rounds(blocks[condition]) * total(body) for condition, body in loops)

  return total(entry)


def _rounds(condition: str) -> int:
  """How often a loop of lax.scan runs: its condition compares a counter from 0 with a constant."""
  limits = re.findall(r"= s32\[\]\S* constant\((\d+)\)", condition)
  if len(limits) != 1:
    raise ValueError(f"This loop does not count up to a constant:\n{condition}")
  return int(limits[0])
