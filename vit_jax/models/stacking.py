"""Converts single blocks (encoderblock_0, ...) to blocks stacked for scan, and back.

Files and users see single blocks; a model with scan=True computes with stacked blocks.
"""

import re

import jax
import jax.numpy as jnp
import numpy as np

APART = re.compile(r"encoderblock_(\d+)")
STACKED = "encoderblock"


def matrix_axes(name: str, axes: int) -> tuple[int, int]:
  """The first axis of the rows, and of the columns, of a block's kernel as a matrix.

  An attention's output sums over heads and channels; all other kernels sum over their first axis.
  """
  rows = int(f"{STACKED}/" in name)  # after the axis of stacked blocks
  columns = axes - 1 if name.endswith("/out/kernel") else rows + 1
  return rows, columns


def stack_blocks(params: dict) -> dict:
  """Turns the tree of a model with scan=False into that of scan=True, at any depth."""
  blocks = {}
  rest = {}
  for key, value in params.items():
    if match := APART.fullmatch(key):
      blocks[int(match[1])] = value
    elif isinstance(value, dict):
      rest[key] = stack_blocks(value)
    else:
      rest[key] = value
  if not blocks:
    return rest
  if sorted(blocks) != list(range(len(blocks))):
    raise ValueError(
      f"The tree holds blocks {sorted(blocks)}; they must be numbered from 0 without gaps."
    )
  ordered = [blocks[i] for i in range(len(blocks))]
  return rest | {STACKED: jax.tree.map(_stack, *ordered)}


def unstack_blocks(params: dict) -> dict:
  """Turns the tree of a model with scan=True into that of scan=False, at any depth."""
  result = {}
  for key, value in params.items():
    if key == STACKED:
      continue
    if isinstance(value, dict):
      value = unstack_blocks(value)
    result[key] = value
  if STACKED not in params:
    return result
  depth = len(jax.tree.leaves(params[STACKED])[0])
  for i in range(depth):
    result[f"{STACKED}_{i}"] = jax.tree.map(lambda leaf, i=i: leaf[i], params[STACKED])
  return result


def _stack(*leaves):
  """Stacks arrays; NumPy arrays stay on the host."""
  if isinstance(leaves[0], np.ndarray):
    return np.stack(leaves)
  return jnp.stack(leaves)
