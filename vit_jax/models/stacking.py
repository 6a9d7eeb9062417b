"""Converts single blocks (encoderblock_0, ...) to blocks stacked for scan, and back.

Files and users see single blocks; a model with scan=True computes with stacked blocks.
"""

import re

import jax
import jax.numpy as jnp
import numpy as np

APART = re.compile(r"encoderblock_(\d+)")
STACKED = "encoderblock"


def stack_blocks(params: dict) -> dict:
  """Turns the tree of a model with scan=False into that of scan=True, at any depth."""
  blocks = {int(match[1]): params[key] for key in params if (match := APART.fullmatch(key))}
  rest = {
    key: stack_blocks(value) if isinstance(value, dict) else value
    for key, value in params.items()
    if not APART.fullmatch(key)
  }
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
  rest = {
    key: unstack_blocks(value) if isinstance(value, dict) else value
    for key, value in params.items()
    if key != STACKED
  }
  if STACKED not in params:
    return rest
  depth = len(jax.tree.leaves(params[STACKED])[0])
  return rest | {
    f"{STACKED}_{i}": jax.tree.map(lambda leaf, i=i: leaf[i], params[STACKED]) for i in range(depth)
  }


def _stack(*leaves):
  """Stacks arrays; NumPy arrays stay on the host."""
  return np.stack(leaves) if isinstance(leaves[0], np.ndarray) else jnp.stack(leaves)
