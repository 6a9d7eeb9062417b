"""The options of an encoder block in which later models differ from the paper's.

A model has them as fields of its own; its blocks get them as one value. The parts themselves are
in norms (`layers.NORMS`), `mlp.py`, `rotary.py`, `attention.py` and `relative_bias.py`.
"""

import dataclasses

import jax
import jax.numpy as jnp

from vit_jax.models.layers import NORMS


@dataclasses.dataclass(frozen=True)
class Parts:
  """The options of all blocks; the defaults are the paper's.

  Attributes:
    norm: kind of every norm, a key of `layers.NORMS`.
    norm_place: "before" attention and MLP (equations 2 and 3); or "after" them, z + LN(MSA(z)), the
      residual post-normalisation of Liu et al., "Swin Transformer V2", 2022 (arXiv 2111.09883,
      Section 3.2).
    mlp: a key of `mlp.KINDS`.
    mlp_norm, attention_norm: a norm of the hidden layer of the MLP, and one of the concatenated
      heads before their projection: the sub-LayerNorm of Wang et al., "Foundation Transformers",
      2022 (arXiv 2210.06423, Section 2).
    qkv_bias: which projections have biases: of queries, keys and values, "all"; "none"; or, as in
      Bao et al., "BEiT", 2022 (arXiv 2106.08254), "no_key", of queries and values.
    dense_bias: whether the other dense layers of a block have biases.
    kv_heads: heads of keys and values, each for several queries (Ainslie et al., "GQA", 2023, arXiv
      2305.13245); 0: as many as heads.
    differential: attention is the difference of two softmax maps; see `attention.Attention`.
    layout: "sequential", attention, then MLP; or "parallel", z + MSA(LN(z)) + MLP(LN(z)) with one
      norm (Dehghani et al., "Scaling Vision Transformers to 22 billion parameters", 2023, arXiv
      2302.05442, Section 2).
    parallel_branches: attentions of a block that are added, followed by as many MLPs (Touvron et
      al., "Three things everyone should know about Vision Transformers", 2022, arXiv 2203.09795,
      Section 3).
    window: rows and columns of the windows that attention is within; 0: it is over the image.
    relative_axes: relative position embeddings along rows and columns; see `attention.axis_logits`.
    rotary: how queries and keys are turned by their places, a key of `rotary.CONVENTIONS`.
  """

  norm: str = "layer"
  norm_place: str = "before"
  mlp: str = "plain"
  mlp_norm: bool = False
  attention_norm: bool = False
  qkv_bias: str = "all"
  dense_bias: bool = True
  kv_heads: int = 0
  differential: bool = False
  layout: str = "sequential"
  parallel_branches: int = 1
  window: int = 0
  relative_axes: bool = False
  rotary: str = "none"

  def norm_of(self, dtype: jnp.dtype, epsilon: float, name: str, *, keep: bool = False):
    """A norm of this kind, as a submodule of the calling module."""
    return NORMS[self.norm](dtype, epsilon, keep, name=name)


@dataclasses.dataclass(frozen=True)
class Tables:
  """What all blocks of a model share, computed once for a grid of patches.

  Attributes:
    rotary: the turns of `rotary.turned`, or None.
    bias: of the attention logits, (1, heads, N, N), or None.
  """

  rotary: tuple[jax.Array, jax.Array] | None = None
  bias: jax.Array | None = None


jax.tree_util.register_dataclass(Tables, data_fields=["rotary", "bias"], meta_fields=[])
NO_TABLES = Tables()
