"""Sorts the instructions of a compiled training step into categories by their purpose."""

import collections
import re

from vit_jax.extras.compiled import bounds, dependence, matmuls
from vit_jax.extras.compiled.instructions import Instruction, Program

CATEGORIES = (
  "forward matmuls",  # also those that remat computes again
  "input gradients",
  "weight gradients",
  "attention, forward",
  "attention, backward",
  "norms",  # LayerNorm, GroupNorm, standardized kernels, and their gradients
  "dropout",
  "biases, activations",  # also residuals, position embeddings, pooling
  "head and loss",
  "input",  # what needs no parameters: pixels, MixUp, targets
  "copies and casts",
  "accumulation",
  "gradient norm",
  "optimizer update",  # also the norms of the parameters and of the update
  "moving average",
  "other",
)
MOVES = (
  *("copy", "transpose", "reshape", "broadcast", "pad", "slice", "concatenate", "convert"),
  *("dynamic-slice", "dynamic-update-slice", "bitcast", "tuple", "fusion", "iota"),
  *("parameter", "constant"),
)
# Flax's and JAX's names in a model.
ATTENTION = (
  r"/(MultiHeadDotProductAttention_\d+|row_attention|column_attention)/(?!(query|key|value|out)/)"
)
HEAD = r"/head/|jvp\(Head\)|ViT\.classify"
GRADIENT = r"jvp\(|transpose\("  # the model, forward and backward
ADDS_PARTS = r"jit\(step\)/while/body/((closed_call|eval_jaxpr)/)?add"  # by version of JAX
OF_MODEL = (  # in the order in which they are tried
  ("dropout", r"jvp\(.*(/Dropout_\d+/|_threefry)"),
  ("norms", r"/(LayerNorm_\d+|encoder_norm|gn_?\w*|group_norm|conv\w*|standardized_conv2d)/"),
  ("head and loss", HEAD + r"|jvp\(\)|jvp\(jit\("),
  ("biases, activations", r"jvp\("),
)


class Categories:
  """Tells the category of each instruction of one step."""

  def __init__(self, program: Program):
    """Finds which instructions depend on the batch and on the state."""
    self._program = program
    self._on_batch = dependence.of(program, "batch")
    self._readers = _readers(program)
    self._on_state = dependence.of(program, ("state.params", "state.optimizer", "state.ema"))

  def of(self, one: Instruction) -> str:
    """The category of an instruction that has cycles of its own.

    A fusion with a matmul belongs to the matmul, whatever else is fused with it. Other fusions go
    by the name of their result, or of what was last computed before it.
    """
    inside = self._program.inside(one)
    multiplying = [each for each in inside if matmuls.is_matmul(each)]
    if self._is_of_average(one):
      return "moving average"
    if not multiplying and _only_moves(inside):
      return "copies and casts"
    name = self._name_of(one)
    if self._is_input(one, name):
      return "input"
    if multiplying:
      return self._of_matmul(multiplying[0])
    if re.search(ATTENTION, name):
      return "attention, " + _direction(name)
    for category, pattern in OF_MODEL:
      if re.search(pattern, name):
        return category
    return _after_the_model(name, {each.op_name.rpartition("/")[2] for each in inside})

  def _is_of_average(self, one: Instruction) -> bool:
    """Whether it reads the moving average, and no moments: the optimizer may be fused with it."""
    read = [self._program.named[name].op_name for name in one.operands]

    def reads(beginning: str) -> bool:
      return any(name.startswith(beginning) for name in read)

    return reads("state.ema") and not reads("state.optimizer")

  def _name_of(self, one: Instruction) -> str:
    """JAX's name of an instruction.

    The compiler drops the name when it splits a reduction. Then the name is that of an instruction
    that reads the result, or whose result is read.
    """
    own = _own_name(self._program, one)
    if own:
      return own
    near = (*self._readers[one.name], *one.operands)
    names = (_own_name(self._program, self._program.named[name]) for name in near)
    return next((name for name in names if re.search(GRADIENT, name)), "")

  def _is_input(self, one: Instruction, name: str) -> bool:
    """Whether it needs no state: it prepares the batch, or draws for it before the model begins.

    Random numbers that the model draws, as for dropout, need no state either, and are not input.
    """
    drawn = not re.search(GRADIENT, name)
    return not self._on_state[one.name] and (self._on_batch[one.name] or drawn)

  def _of_matmul(self, matmul: Instruction) -> str:
    """The category of a matmul or a convolution."""
    name = matmul.op_name
    if re.search(ATTENTION, name):
      return "attention, " + _direction(name)
    if re.search(HEAD, name):
      return "head and loss"
    if _direction(name) == "forward":
      return "forward matmuls"
    # Activations and their gradients depend on the batch, and kernels do not.
    if all(self._on_batch[operand] for operand in matmul.operands):
      return "weight gradients"
    return "input gradients"


def _own_name(program: Program, one: Instruction) -> str:
  """The name of an instruction, or of the last in it that has one; "" if none has."""
  inside = reversed(program.inside(one))
  return one.op_name or next((each.op_name for each in inside if each.op_name), "")


def _readers(program: Program) -> dict[str, list[str]]:
  """{name of an instruction: those that read its value, also by another name}."""
  readers = collections.defaultdict(list)
  for block in program.blocks.values():
    for one in reversed(block):
      for name in one.operands:
        if one.kind in bounds.RENAMES:
          readers[name] += readers[one.name]
        else:
          readers[name].append(one.name)
  return readers


def _only_moves(inside: list[Instruction]) -> bool:
  """Whether instructions only move or convert their operands."""
  return all(each.kind in MOVES for each in inside)


def _direction(name: str) -> str:
  """The pass that a name belongs to; recomputation by remat in the backward pass is forward."""
  if "transpose(" in name and "rematted_computation" not in name:
    return "backward"
  return "forward"


def _after_the_model(name: str, inside: set[str]) -> str:
  """The category of an operation on the gradients; `inside` are the operations' own names."""
  if "select_n" in inside:  # the old state is kept if the gradient is not finite
    return "optimizer update"
  if "square" in inside:
    return "gradient norm"
  if re.fullmatch(ADDS_PARTS, name):
    return "accumulation"
  return "other"
