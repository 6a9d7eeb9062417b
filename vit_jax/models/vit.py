"""The Vision Transformer (Section 3.1, equations 1 to 4).

Parameters carry the names of the published weights, so a tree, flattened with "/", is the
published file. Blocks are either apart (Transformer/encoderblock_0, ...) or, under scan,
stacked along a first axis (Transformer/encoderblock); see vit_jax.models.stacking.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from vit_jax.models.attention import SelfAttention
from vit_jax.models.norm import LayerNorm

REMAT_POLICIES = {
  "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
  "everything": jax.checkpoint_policies.nothing_saveable,
}


class MlpBlock(nn.Module):
  """Two dense layers with GELU between."""

  mlp_dim: int
  dropout: float
  dtype: jnp.dtype

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

    drop = nn.Dropout(self.dropout, deterministic=not train)
    hidden = drop(nn.gelu(dense(self.mlp_dim, "Dense_0")(x), approximate=True))
    return drop(dense(x.shape[-1], "Dense_1")(hidden))


class EncoderBlock(nn.Module):
  """One pre-norm block: z' = MSA(LN(z)) + z, then MLP(LN(z')) + z' (equations 2 and 3)."""

  mlp_dim: int
  heads: int
  dropout: float
  dtype: jnp.dtype
  attention: str

  @nn.compact
  def __call__(self, x: jax.Array, train: bool) -> tuple[jax.Array, None]:
    """(B, N, D) -> (B, N, D); the second value is what `nn.scan` collects: nothing."""
    y = LayerNorm(self.dtype, name="LayerNorm_0")(x)
    y = SelfAttention(
      self.heads, self.dtype, self.attention, name="MultiHeadDotProductAttention_1"
    )(y)
    x = x + nn.Dropout(self.dropout, deterministic=not train)(y)
    y = LayerNorm(self.dtype, name="LayerNorm_2")(x)
    y = MlpBlock(self.mlp_dim, self.dropout, self.dtype, name="MlpBlock_3")(y, train=train)
    return x + y, None


class PositionEmbedding(nn.Module):
  """Learned 1-D position embeddings, added to the tokens."""

  @nn.compact
  def __call__(self, x: jax.Array) -> jax.Array:
    """(B, N, D) -> (B, N, D)."""
    table = self.param("pos_embedding", nn.initializers.normal(0.02), (1, *x.shape[1:]))
    return x + table.astype(x.dtype)


class Encoder(nn.Module):
  """Position embeddings, `depth` blocks, final LayerNorm."""

  depth: int
  mlp_dim: int
  heads: int
  dropout: float
  dtype: jnp.dtype
  attention: str
  scan: bool
  remat: str

  @nn.compact
  def __call__(self, x: jax.Array, *, train: bool) -> jax.Array:
    """(B, N, D) -> (B, N, D)."""
    x = PositionEmbedding(name="posembed_input")(x)
    x = nn.Dropout(self.dropout, deterministic=not train)(x)
    options = dict(
      mlp_dim=self.mlp_dim,
      heads=self.heads,
      dropout=self.dropout,
      dtype=self.dtype,
      attention=self.attention,
    )
    block = EncoderBlock
    if self.remat != "none":
      # Under scan the loop itself keeps XLA from merging the recomputation with the forward pass.
      block = nn.remat(
        block, policy=REMAT_POLICIES[self.remat], prevent_cse=not self.scan, static_argnums=(2,)
      )
    if self.scan:
      stacked = nn.scan(
        block,
        variable_axes={"params": 0},
        length=self.depth,
        split_rngs={"params": True, "dropout": True},
        in_axes=nn.broadcast,
      )
      x, _ = stacked(**options, name="encoderblock")(x, train)
    else:
      for i in range(self.depth):
        x, _ = block(**options, name=f"encoderblock_{i}")(x, train)
    return LayerNorm(self.dtype, name="encoder_norm")(x)


class ViT(nn.Module):
  """Vision Transformer.

  Attributes:
    patch: side of a patch, pixels.
    depth, width, mlp_dim, heads: shape of the encoder (Table 1: layers, hidden size D, ...).
    num_classes: outputs of the head.
    pool: "class_token" (the paper's) or "gap", the mean over the patch outputs (Appendix D.3).
    representation_layer: a dense layer of size D and tanh before the head, as in pre-training.
    dropout: rate, after each dense layer but the q/k/v projections and the two of the head, and
      after the position embeddings (Appendix B.1).
    head_bias: initial value of the head's bias.
    dtype: type of the computation; parameters are float32.
    attention: implementation of `jax.nn.dot_product_attention`, "xla" or "cudnn".
    scan: stack the blocks under one `nn.scan`.
    remat: "none", "dots" (recompute all but the outputs of dense layers) or "everything".
  """

  patch: int
  depth: int
  width: int
  mlp_dim: int
  heads: int
  num_classes: int = 1000
  pool: str = "class_token"
  representation_layer: bool = False
  dropout: float = 0.0
  head_bias: float = 0.0
  dtype: jnp.dtype = jnp.float32
  attention: str = "xla"
  scan: bool = False
  remat: str = "none"

  @nn.compact
  def __call__(self, images: jax.Array, *, train: bool) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Classifies images.

    Args:
      images: (B, H, W, 3) in [-1, 1]; H and W divisible by `patch`.
      train: whether dropout is on; it then needs an rng named "dropout".

    Returns:
      logits (B, num_classes) float32, and the features: "patches" (B, N, D), the encoder's
      output at the patches, and "pre_logits" (B, D), what the head sees.

    Raises:
      ValueError: an image size that the patch size does not divide.
    """
    x = self.embed(images.astype(self.dtype))
    if self.pool == "class_token":
      cls = self.param("cls", nn.initializers.zeros, (1, 1, self.width)).astype(x.dtype)
      x = jnp.concatenate([jnp.broadcast_to(cls, (len(x), 1, self.width)), x], axis=1)
    x = Encoder(
      depth=self.depth,
      mlp_dim=self.mlp_dim,
      heads=self.heads,
      dropout=self.dropout,
      dtype=self.dtype,
      attention=self.attention,
      scan=self.scan,
      remat=self.remat,
      name="Transformer",
    )(x, train=train)
    y, patches = (x[:, 0], x[:, 1:]) if self.pool == "class_token" else (x.mean(axis=1), x)
    if self.representation_layer:
      y = jnp.tanh(nn.Dense(self.width, dtype=self.dtype, name="pre_logits")(y))
    logits = nn.Dense(
      self.num_classes,
      kernel_init=nn.initializers.zeros,
      bias_init=nn.initializers.constant(self.head_bias),
      name="head",
    )(y.astype(jnp.float32))
    return logits, {"patches": patches, "pre_logits": y}

  def embed(self, images: jax.Array) -> jax.Array:
    """Patch embedding (equation 1): (B, H, W, 3) -> (B, H / patch * W / patch, D)."""
    _, height, width, _ = images.shape
    if height % self.patch or width % self.patch:
      raise ValueError(
        f"Images of {height} x {width} pixels cannot be cut into patches of "
        f"{self.patch} x {self.patch}: the patch size must divide both sides."
      )
    x = nn.Conv(
      self.width,
      (self.patch, self.patch),
      strides=self.patch,
      padding="VALID",
      dtype=self.dtype,
      name="embedding",
    )(images)
    return x.reshape(len(x), -1, self.width)
