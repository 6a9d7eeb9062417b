"""Finds the values of a compiled step that depend on one of its arguments."""

from vit_jax.extras.compiled import program_text
from vit_jax.extras.compiled.instructions import Instruction, Program

Flags = tuple[bool, ...]  # of each element of a tuple; of anything else, one flag


def of(program: Program, argument: str | tuple[str, ...]) -> dict[str, bool]:
  """{name of an instruction: whether its value, or a part of it, depends on an argument}.

  A value depends on the argument if anything that it is computed from does. Values carried around a
  loop are followed until nothing changes.

  Args:
    program: the step.
    argument: how the names of its parameters begin, such as "batch"; or several such beginnings.
  """
  known: dict[str, Flags] = {}

  def visit(block: str, arguments: list[Flags]) -> Flags:
    for one in program.blocks[block]:
      known[one.name] = _merged(known.get(one.name, (False,)), flags(one, arguments))
    return known[program.result(block).name]

  def flags(one: Instruction, arguments: list[Flags]) -> Flags:
    if one.kind == "parameter" and arguments:
      return arguments[one.number]
    if one.kind == "parameter":
      return (one.op_name.startswith(argument),)
    operands = [known[name] for name in one.operands]
    if one.kind == "get-tuple-element":
      return (_element(operands[0], int(one.attribute(r"index=(\d+)"))),)
    if one.kind == "tuple":
      return tuple(any(each) for each in operands)
    if one.kind == "while":
      return around(one.attribute(r"body=(%[^\s,]+)"), operands[0])
    if one.called:
      return visit(one.called, operands)
    if len(operands) == 1:
      return operands[0]
    return (any(any(each) for each in operands),)

  def around(body: str, carried: Flags) -> Flags:
    after = _merged(carried, visit(body, [carried]))
    if after == carried:
      return after
    return around(body, after)

  visit(program_text.ENTRY, [])
  return {name: any(each) for name, each in known.items()}


def _element(flags: Flags, index: int) -> bool:
  if len(flags) == 1:
    return flags[0]
  return flags[index]


def _merged(one: Flags, other: Flags) -> Flags:
  if len(one) == len(other):
    return tuple(a or b for a, b in zip(one, other, strict=True))
  shorter, longer = sorted((one, other), key=len)
  return tuple(each or shorter[0] for each in longer)
