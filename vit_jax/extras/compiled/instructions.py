"""The instructions of a compiled program, read from its text."""

import operator
import re
from typing import NamedTuple

from vit_jax.extras.compiled import program_text

# Instructions that only name, arrange or hold values, and loops, whose bodies are launched.
UNLAUNCHED = (
  *("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "while", "opt-barrier"),
  *("after-all", "partition-id", "replica-id", "async-start"),
)
LINE = re.compile(r"\s*(ROOT )?(%\S+) = (.*?) ([a-z][\w-]*)\((.*)")


class Instruction(NamedTuple):
  """One line of a program.

  Attributes:
    root: whether it is the result of its block.
    name: unique in the program.
    shape: of the result, with its layout; of several results, all of them.
    kind: such as "fusion" or "convolution".
    rest: the rest of the line: operands, then attributes.
  """

  root: bool
  name: str
  shape: str
  kind: str
  rest: str

  @property
  def operands(self) -> list[str]:
    """The names of the instructions that it reads."""
    return re.findall(r"%[^\s,()]+", re.split(r"\)(?:, |$)", self.rest)[0])

  @property
  def number(self) -> int:
    """Which parameter of its block it is, from 0; only of parameters."""
    return int(self.rest.partition(")")[0])

  @property
  def op_name(self) -> str:
    """JAX's name, such as "jit(step)/jvp(ViT)/.../Dense_0/dot_general"; may be ""."""
    return self.attribute(r'op_name="([^"]*)"') or ""

  @property
  def called(self) -> str | None:
    """The block that a fusion computes."""
    return self.attribute(r" calls=(%[^\s,]+)")

  @property
  def target(self) -> str:
    """The library function of a custom call; "" for other instructions."""
    return self.attribute(r'custom_call_target="([^"]*)"') or ""

  @property
  def cycles(self) -> int:
    """The compiler's count of cycles for one run; 0 if it gives none."""
    return int(self.attribute(program_text.CYCLES) or 0)

  def attribute(self, pattern: str) -> str | None:
    """The first group of a pattern in the rest of the line; None if it is not there."""
    match = re.search(pattern, self.rest)
    return match and match[1]


class Program:
  """The instructions of a compiled program.

  Attributes:
    blocks: {name: instructions} of every block.
    named: {name: instruction}.
    timed: (number of runs, instruction) of those that take time of their own: by the compiler's
      count of cycles, or, where it counts none, what a GPU launches. Communication has none.
  """

  def __init__(self, text: str):
    """Reads the text of a program."""
    blocks = program_text.computations(text)
    self.blocks = {name: list(_instructions(block)) for name, block in blocks.items()}
    self.named = {one.name: one for block in self.blocks.values() for one in block}
    takes_time = operator.attrgetter("cycles")
    if program_text.cycles(text) is None:
      takes_time = is_launched
    self.timed = [
      (times, one)
      for name, times in program_text.counted(blocks).items()
      for one in self.blocks[name]
      if takes_time(one)
    ]

  def inside(self, one: Instruction) -> list[Instruction]:
    """The instructions in a fusion and in fusions inside it; for another instruction, itself."""
    if not one.called:
      return [one]
    return [each for inner in self.blocks[one.called] for each in self.inside(inner)]

  def result(self, block: str) -> Instruction:
    """The instruction whose value is that of its block."""
    return next(one for one in self.blocks[block] if one.root)


def is_launched(one: Instruction) -> bool:
  """Whether a GPU launches something for an instruction: a kernel, or a copy."""
  communicates = one.kind.startswith(program_text.COLLECTIVES) or one.kind.endswith("-done")
  return one.kind not in UNLAUNCHED and not communicates


def _instructions(block: str):
  for line in block.splitlines():
    if match := LINE.match(line):
      yield Instruction(bool(match[1]), *match.groups()[1:])
