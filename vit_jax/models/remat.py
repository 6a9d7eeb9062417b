"""Rematerialisation: activations that the backward pass recomputes instead of keeping them."""

import flax.linen as nn
import jax

POLICIES = {
  "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
  "everything": jax.checkpoint_policies.nothing_saveable,
}


def remat(block, policy: str, *, scan: bool = False, static_argnums=()):
  """The module class `block`, rematerialised by `policy`; the same class for "none"."""
  if policy == "none":
    return block
  # Under scan the loop itself keeps XLA from merging the recomputation with the forward pass.
  return nn.remat(
    block, policy=POLICIES[policy], prevent_cse=not scan, static_argnums=static_argnums
  )
