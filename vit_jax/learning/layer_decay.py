"""Layer-wise decay of the learning rate, for fine-tuning: early layers change less than late ones.

Source: Clark et al., "ELECTRA", 2020; Bao et al., "BEiT", 2022, whose layers these are.
"""

import re

import jax
import jax.numpy as jnp
import numpy as np
import optax

from vit_jax.models.stacking import APART, STACKED
from vit_jax.storage.tree import name_of

LAST = re.compile(r"(head|pre_logits|MAPHead_0|objective|Transformer/encoder_norm)/.*")


def scale_by_layer(decay: float) -> optax.GradientTransformation:
  """Multiplies the update of each parameter by the factor of its layer; `factors` gives these."""

  def update(updates, state, params):
    scaled = jax.tree.map(lambda u, f: u * f, updates, factors(params, decay))
    return scaled, state

  return optax.GradientTransformation(optax.init_empty_state, update)


def factors(params, decay: float):
  """decay^(L + 1 - l) for the parameters of layer l; L is the number of blocks.

  Layer 0 is all that comes before the blocks: patch and position embeddings, the class token, other
  tokens, a hybrid's ResNet. Layers 1 to L are the blocks. Layer L + 1 is all behind them: the final
  LayerNorm, pooling and the head. The final LayerNorm has the factor of the head, 1, as in BEiT and
  MAE; timm counts it to the last block, with the factor `decay`.

  Args:
    params: all parameters, or their shapes; blocks single or stacked.
    decay: factor from each layer to the one before it.

  Returns:
    A tree of numbers; for stacked blocks arrays (L, 1, ...).
  """
  blocks = [block_of(name_of(path), x) for path, x in jax.tree_util.tree_leaves_with_path(params)]
  depth = 1 + max((np.max(block) for block in blocks if block is not None), default=-1)

  def factor(path, x):
    block = block_of(name_of(path), x)
    if block is not None:
      powers = decay ** (depth - block.astype(float))
      return jnp.asarray(powers, x.dtype) if powers.ndim else float(powers)
    return 1.0 if LAST.fullmatch(name_of(path)) else decay ** (depth + 1.0)

  return jax.tree_util.tree_map_with_path(factor, params)


def block_of(name: str, x) -> np.ndarray | None:
  """The block that a parameter belongs to, counted from 0; None if it belongs to none.

  For stacked blocks the numbers of all, (L, 1, ...), which broadcast with the parameter.
  """
  for part in name.split("/"):
    if match := APART.fullmatch(part):
      return np.array(int(match[1]))
    if part == STACKED:
      return np.arange(x.shape[0]).reshape(-1, *[1] * (x.ndim - 1))
  return None
