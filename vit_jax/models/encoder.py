"""The encoder of the Vision Transformer (equations 2 to 4): positions, blocks, final LayerNorm."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp

from vit_jax.models.block import AxialBlock, EncoderBlock
from vit_jax.models.dropout import Dropout
from vit_jax.models.norm import LayerNorm
from vit_jax.models.positions import PositionEmbedding
from vit_jax.models.remat import remat


class Encoder(nn.Module):
  """Two stages, each with its own parameters: `add_positions`, and the call, which runs the blocks.

  Attributes:
    grid: rows and columns of patches.
    class_token: whether a class token precedes the patches.
    others: as in `vit_jax.models.vit.ViT`.
  """

  grid: tuple[int, int]
  class_token: bool
  depth: int
  mlp_dim: int
  heads: int
  dropout: float
  positions: str
  position_place: str
  axial: bool
  dtype: jnp.dtype
  attention: str
  scan: bool
  remat: str
  activation: str
  norm_epsilon: float

  @nn.compact
  def add_positions(self, x: jax.Array, *, train: bool) -> jax.Array:
    """Adds the stem's position embeddings, if any, and dropout: (B, N, D) -> (B, N, D)."""
    if position := self._position("stem", x.shape[-1]):
      x = x + PositionEmbedding(**position, name="posembed_input")().astype(x.dtype)
    return Dropout(self.dropout)(x, train=train)

  @nn.compact
  def __call__(self, x: jax.Array, *, train: bool) -> jax.Array:
    """The blocks and the final LayerNorm: (B, N, D) -> (B, N, D)."""
    shared = None
    if position := self._position("every_layer_shared", x.shape[-1]):
      # This name differs, so that the parameters alone identify the model.
      shared = PositionEmbedding(**position, name="posembed_shared")()
    options = self._block_options() | dict(position=self._position("every_layer", x.shape[-1]))
    block = AxialBlock if self.axial else EncoderBlock
    block = remat(block, self.remat, scan=self.scan, static_argnums=(3,))
    if self.scan:
      x, _ = self._stacked(block)(**options, name="encoderblock")(x, shared, train)
    else:
      for i in range(self.depth):
        x, _ = block(**options, name=f"encoderblock_{i}")(x, shared, train)
    return LayerNorm(self.dtype, self.norm_epsilon, name="encoder_norm")(x)

  @nn.nowrap
  def _position(self, place: str, width: int) -> dict | None:
    """Fields of the `PositionEmbedding` at this place; None if there is none."""
    if self.positions not in ("1d", "2d") or self.position_place != place:
      return None
    return dict(kind=self.positions, grid=self.grid, class_token=self.class_token, width=width)

  @nn.nowrap
  def _block_options(self) -> dict:
    """Fields of every block, without its position embedding."""
    options = dict(
      mlp_dim=self.mlp_dim,
      heads=self.heads,
      dropout=self.dropout,
      dtype=self.dtype,
      attention=self.attention,
      activation=self.activation,
      norm_epsilon=self.norm_epsilon,
      relative=self.positions == "relative",
    )
    return dict(grid=self.grid, options=options) if self.axial else options

  @nn.nowrap
  def _stacked(self, block):
    """`depth` blocks as one module class, whose parameters have a first axis of that size."""
    stacked = nn.scan(
      block,
      variable_axes={"params": 0},
      length=self.depth,
      split_rngs={"params": True, "dropout": True},
      in_axes=nn.broadcast,
    )
    if self.is_initializing():
      return stacked
    # If each block cast its parameters itself, the backward pass would keep a second copy of them.
    cast = functools.partial(in_type, dtype=self.dtype)
    return nn.map_variables(stacked, "params", trans_in_fn=cast)


def in_type(variables: dict, dtype: jnp.dtype) -> dict:
  """The variables of blocks in the type of the computation, except those of LayerNorm."""

  def cast(path, leaf):
    return leaf if "LayerNorm" in jax.tree_util.keystr(path) else leaf.astype(dtype)

  return jax.tree_util.tree_map_with_path(cast, variables)
