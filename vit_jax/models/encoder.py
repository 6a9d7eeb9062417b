"""The encoder of the Vision Transformer (equations 2 to 4): blocks, positions, final LayerNorm.

A block is x + branch(x). With LayerScale and stochastic depth, which the paper has not, it is
x + b / (1 - p) s branch(x). Position embeddings are added to the tokens at the stem or at layers
(Appendix D.4, Table 8); relative ones change the attention weights instead (attention.py).
"""

import dataclasses
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from vit_jax.models.attention import Attention, fitting, padded
from vit_jax.models.layers import (
  EPSILON,
  GELU_FORMS,
  Dropout,
  LayerNorm,
  batch_first,
  remat,
  split_by_example,
)


@dataclasses.dataclass(frozen=True)
class Branches:
  """The options of all residual branches of a model; the fields are those of `ViT`."""

  layer_scale: bool = False
  layer_scale_init: float = 1e-4
  stochastic_depth: float = 0.0
  stochastic_depth_rule: str = "linear"

  def rates(self, depth: int) -> np.ndarray | None:
    """The rate of stochastic depth of each of `depth` blocks, (depth,) float32; None: all are 0.

    "linear": from 0 in the first block to `stochastic_depth` in the last one (Huang et al., "Deep
    networks with stochastic depth", 2016, equation 4, with blocks counted from 0 to depth - 1 as in
    timm and in Steiner et al., 2021). "uniform": the same in all blocks (as in DeiT III).
    """
    if not self.stochastic_depth:
      return None
    if self.stochastic_depth_rule == "uniform":
      return np.full(depth, self.stochastic_depth, np.float32)
    return np.linspace(0, self.stochastic_depth, depth, dtype=np.float32)

  def applied(self, y: jax.Array, name: str, rate, *, train: bool) -> jax.Array:
    """The output (B, N, D) of a branch as it is added to the block's input.

    Call it from a compact method: its parameters belong to the calling module.

    Args:
      y: the output of the branch.
      name: of the LayerScale.
      rate: of stochastic depth, a scalar; None: 0.
      train: whether to use stochastic depth, which needs an rng named "dropout".
    """
    if self.layer_scale:
      y = LayerScale(self.layer_scale_init, name=name)(y)
    if rate is None or not train:
      return y
    return StochasticDepth()(y, rate)


class LayerScale(nn.Module):
  """s y, with a learned factor s for each channel (Touvron et al., "Going deeper with image
  transformers", 2021, Section 2).

  Attributes:
    initial: initial value of every factor.
  """

  initial: float

  @nn.compact
  def __call__(self, y: jax.Array) -> jax.Array:
    """(B, N, D) -> (B, N, D)."""
    scale = self.param("scale", nn.initializers.constant(self.initial), (y.shape[-1],))
    return y * scale.astype(y.dtype)


class StochasticDepth(nn.Module):
  """b y / (1 - p): b is 0 with probability p, the rate, and else 1, drawn for each image.

  Source: Huang et al., 2016. There the sum is not scaled in training, and multiplied by 1 - p in
  evaluation; scaling in training instead has the same mean, and is what timm does.
  """

  @nn.compact
  def __call__(self, y: jax.Array, rate: jax.Array) -> jax.Array:
    """(B, N, D) and a scalar below 1 -> (B, N, D)."""
    shape = (y.shape[0], *[1] * (y.ndim - 1))
    kept = jax.random.bernoulli(self.make_rng("dropout"), 1 - rate, shape)
    scaled = (y.astype(jnp.float32) / (1 - rate)).astype(y.dtype)
    return jnp.where(kept, scaled, 0)


# Fixed embeddings of later papers, without parameters. The exponents of the frequencies go from 0
# to 1; the value says whether 1 is included (`wave`).
FIXED = {"sincos2d": True, "sincos2d_mae": False}
ADDED = ("1d", "2d", *FIXED)  # the kinds that are added to tokens
TEMPERATURE = 10_000


class PositionEmbedding(nn.Module):
  """A table with one vector for each token.

  Attributes:
    kind: "1d", one learned vector for each token, first for the tokens before the patches, then for
      the patches in raster order; or "2d", a learned vector of size D/2 for each row of the grid
      and one for each column, concatenated; or one of `FIXED`, a wave of size D/2 for the column
      and one for the row, concatenated. In all but "1d" the tokens before the patches have no
      position and get zeros.
    grid: rows and columns of patches.
    before: number of tokens before the patches, such as the class token.
    width: D.
  """

  kind: str
  grid: tuple[int, int]
  before: int
  width: int

  @nn.compact
  def __call__(self) -> jax.Array:
    """The table (1, before + N, D), float32."""
    rows, columns = self.grid
    half = self.width // 2
    init = nn.initializers.normal(0.02)
    if self.kind == "1d":
      shape = (1, self.before + rows * columns, self.width)
      return self.param("pos_embedding", init, shape)
    if self.kind == "2d":
      row = self.param("pos_embedding_row", init, (rows, half))
      column = self.param("pos_embedding_column", init, (columns, half))
      first = row[:, None]
      second = column[None]
    else:
      last = FIXED[self.kind]
      first = wave(columns, half, last=last)[None]
      second = wave(rows, half, last=last)[:, None]
    shape = (rows, columns, half)
    halves = [jnp.broadcast_to(first, shape), jnp.broadcast_to(second, shape)]
    table = jnp.concatenate(halves, axis=-1).reshape(1, rows * columns, self.width)
    return jnp.pad(table, ((0, 0), (self.before, 0), (0, 0)))


def wave(count: int, width: int, *, last: bool) -> np.ndarray:
  """Sines, then cosines, of the positions 0, 1, ... along one axis: (count, width), float32.

  The n = width / 2 frequencies are 10000^-e. With `last`, e = 0, 1 / (n - 1), ..., 1 (Beyer et al.,
  "Better plain ViT baselines for ImageNet-1k", 2022, in its published code); without,
  e = 0, 1 / n, ..., (n - 1) / n (Chen et al., "MoCo v3", 2021; He et al., "Masked autoencoders",
  2022, in their published codes).
  """
  exponents = np.linspace(0, 1, width // 2, endpoint=last)
  angles = np.arange(count)[:, None] * TEMPERATURE**-exponents
  return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)


class MlpBlock(nn.Module):
  """Two dense layers with GELU between."""

  mlp_dim: int
  dropout: float
  dtype: jnp.dtype
  activation: str = "gelu_tanh"

  @nn.compact
  def __call__(self, x: jax.Array, *, train: bool) -> jax.Array:
    """(B, N, D) -> (B, N, D)."""

    def dense(size, name):
      return nn.Dense(
        size,
        dtype=self.dtype,
        kernel_init=nn.initializers.xavier_uniform(),
        bias_init=nn.initializers.normal(1e-6),
        name=name,
      )

    drop = Dropout(self.dropout)
    gelu = GELU_FORMS[self.activation]
    hidden = gelu(dense(self.mlp_dim, "Dense_0")(x))
    hidden = drop(hidden, train=train)
    outputs = dense(x.shape[-1], "Dense_1")(hidden)
    return drop(outputs, train=train)


class EncoderBlock(nn.Module):
  """One pre-norm block: z' = MSA(LN(z)) + z, then MLP(LN(z')) + z' (equations 2 and 3).

  Attributes:
    mlp_dim, heads, dropout, dtype, attention, activation, norm_epsilon, qk_norm: as in
      vit_jax.models.vit.ViT.
    relative: relative position embeddings.
    position: fields of this block's own `PositionEmbedding`, or None.
    count: as in `Attention`.
    branches: LayerScale and stochastic depth, which the paper does not have.
  """

  mlp_dim: int
  heads: int
  dropout: float
  dtype: jnp.dtype
  attention: str
  activation: str = "gelu_tanh"
  norm_epsilon: float = EPSILON
  relative: bool = False
  position: dict | None = None
  count: int | None = None
  qk_norm: bool = False
  branches: Branches = Branches()

  @nn.compact
  def __call__(self, x: jax.Array, shared: jax.Array | None, train: bool, rate=None):
    """(B, N, D) and position embeddings shared by all blocks -> (B, N, D) and None.

    `rate` is this block's rate of stochastic depth. `nn.scan` requires a pair as the result.
    """
    x = add_positions(split_by_example(x), shared, self.position)
    norm = functools.partial(LayerNorm, self.dtype, self.norm_epsilon, self.attention == "cudnn")
    y = norm(name="LayerNorm_0")(x)
    y = Attention(
      self.heads,
      self.dtype,
      self.attention,
      self.relative,
      self.count,
      self.qk_norm,
      self.norm_epsilon,
      name="MultiHeadDotProductAttention_1",
    )(y)
    y = Dropout(self.dropout)(y, train=train)
    x = x + self.branches.applied(y, "LayerScale_1", rate, train=train)
    y = norm(name="LayerNorm_2")(x)
    mlp = MlpBlock(self.mlp_dim, self.dropout, self.dtype, self.activation, name="MlpBlock_3")
    y = mlp(y, train=train)
    return x + self.branches.applied(y, "LayerScale_3", rate, train=train), None


class AxialBlock(nn.Module):
  """A block over the rows of the grid, then one over its columns (Appendix D.6).

  Attributes:
    grid: rows and columns of tokens; there are no tokens before the patches.
    options: fields of both `EncoderBlock`s.
    position: as in `EncoderBlock`.
  """

  grid: tuple[int, int]
  options: dict
  position: dict | None = None

  @nn.compact
  def __call__(self, x: jax.Array, shared: jax.Array | None, train: bool, rate=None):
    """As `EncoderBlock`; the tokens are those of the grid in raster order. `rate` is None."""
    batch, _, width = x.shape
    rows, columns = self.grid
    x = add_positions(x, shared, self.position)
    x = x.reshape(batch * rows, columns, width)
    x, _ = EncoderBlock(**self.options, name="row")(x, None, train)
    x = x.reshape(batch, rows, columns, width).swapaxes(1, 2).reshape(-1, rows, width)
    x, _ = EncoderBlock(**self.options, name="column")(x, None, train)
    x = x.reshape(batch, columns, rows, width).swapaxes(1, 2)
    return x.reshape(batch, rows * columns, width), None


class Encoder(nn.Module):
  """The encoder in two stages with separate parameters: first `add_positions`, then the blocks.

  Attributes:
    grid: rows and columns of patches.
    before: number of tokens before the patches.
    others: as in `vit_jax.models.vit.ViT`.
  """

  grid: tuple[int, int]
  before: int
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
  qk_norm: bool = False
  branches: Branches = Branches()

  @nn.compact
  def add_positions(self, x: jax.Array, *, train: bool) -> jax.Array:
    """Adds the stem's position embeddings, if any, and dropout: (B, N, D) -> (B, N, D)."""
    if position := self._position("stem", x.shape[-1]):
      x = x + PositionEmbedding(**position, name="posembed_input")().astype(x.dtype)
    return Dropout(self.dropout)(x, train=train)

  @nn.compact
  def __call__(self, x: jax.Array, *, train: bool) -> jax.Array:
    """The blocks and the final LayerNorm: (B, N, D) -> (B, N, D)."""
    count = x.shape[1]
    shared = None
    if position := self._position("every_layer_shared", x.shape[-1]):
      # This name differs, so that the parameters alone identify the model.
      shared = PositionEmbedding(**position, name="posembed_shared")()
    if self.attention == "cudnn" and not self.axial:
      # Padding once here moves a twelfth of the bytes that padding in each attention would.
      x = batch_first(padded(x, fitting(count)))
    options = self._block_options(count) | dict(position=self._position("every_layer", x.shape[-1]))
    block = AxialBlock if self.axial else EncoderBlock
    block = remat(block, self.remat, scan=self.scan, static_argnums=(3,))
    rates = self.branches.rates(self.depth)
    if self.scan:
      x, _ = self._stacked(block)(**options, name="encoderblock")(x, shared, train, rates)
    else:
      for i in range(self.depth):
        rate = None if rates is None else rates[i]
        x, _ = block(**options, name=f"encoderblock_{i}")(x, shared, train, rate)
    return LayerNorm(self.dtype, self.norm_epsilon, name="encoder_norm")(x[:, :count])

  @nn.nowrap
  def _position(self, place: str, width: int) -> dict | None:
    """Fields of the `PositionEmbedding` at this place; None if there is none."""
    if self.positions not in ADDED or self.position_place != place:
      return None
    return dict(kind=self.positions, grid=self.grid, before=self.before, width=width)

  @nn.nowrap
  def _block_options(self, count: int) -> dict:
    """Fields of every block for this many tokens, without its position embedding."""
    options = dict(
      mlp_dim=self.mlp_dim,
      heads=self.heads,
      dropout=self.dropout,
      dtype=self.dtype,
      attention=self.attention,
      activation=self.activation,
      norm_epsilon=self.norm_epsilon,
      relative=self.positions == "relative",
      qk_norm=self.qk_norm,
      branches=self.branches,
    )
    if self.axial:
      return dict(grid=self.grid, options=options)
    return options | dict(count=count)

  @nn.nowrap
  def _stacked(self, block):
    """`depth` blocks as one module class, whose parameters have a first axis of that size."""
    stacked = nn.scan(
      block,
      variable_axes={"params": 0},
      length=self.depth,
      split_rngs={"params": True, "dropout": True},
      in_axes=(nn.broadcast, nn.broadcast, 0),  # each block gets its own rate
    )
    if self.is_initializing():
      return stacked
    # If each block cast its parameters itself, the backward pass would keep a second copy of them.
    cast = functools.partial(in_type, dtype=self.dtype)
    return nn.map_variables(stacked, "params", trans_in_fn=cast)


def add_positions(x: jax.Array, shared: jax.Array | None, own: dict | None) -> jax.Array:
  """Adds the shared and the calling block's own position embeddings to the tokens, if given."""
  if shared is not None:
    x = x + padded(shared.astype(x.dtype), x.shape[1])
  if own is not None:
    own = PositionEmbedding(**own, name="posembed_input")()
    x = x + padded(own.astype(x.dtype), x.shape[1])
  return x


def in_type(variables: dict, dtype: jnp.dtype) -> dict:
  """Casts the variables of blocks to `dtype`, except those of LayerNorm."""

  def cast(path, leaf):
    if "LayerNorm" in jax.tree_util.keystr(path):
      return leaf
    return leaf.astype(dtype)

  return jax.tree_util.tree_map_with_path(cast, variables)
