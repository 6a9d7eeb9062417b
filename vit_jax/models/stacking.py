"""Between blocks apart (encoderblock_0, encoderblock_1, ...) and blocks stacked for scan.

Files and users see blocks apart; a model with scan=True computes with them stacked.
"""

import re

import jax
import jax.numpy as jnp
import numpy as np

APART = re.compile(r"encoderblock_(\d+)")
STACKED = "encoderblock"


def stack_blocks(params: dict) -> dict:
  """The tree of a model with scan=True, from one with scan=False; any nesting."""
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
  """The tree of a model with scan=False, from one with scan=True; any nesting."""
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
  """NumPy arrays stay on the host."""
  return np.stack(leaves) if isinstance(leaves[0], np.ndarray) else jnp.stack(leaves)
