"""The Vision Transformer (Section 3.1, equations 1 to 4), its hybrids and its axial form.

Parameters have the names of the published weights: a tree, flattened with "/", is the published
file. Blocks are either single (Transformer/encoderblock_0, ...) or, with scan, stacked along a
first axis (Transformer/encoderblock); see vit_jax.models.stacking.

`FAMILY`, at the end, gives the fields for a name such as "R50x1+ViT-B/16", or for parameters.
"""

import dataclasses
import re

import flax.linen as nn
import jax
import jax.numpy as jnp

from vit_jax import config
from vit_jax.config import Size, sides
from vit_jax.devices.mesh import LARGEST
from vit_jax.models.branches import Branches
from vit_jax.models.convolution import STAGES
from vit_jax.models.encoder import Encoder
from vit_jax.models.family import Family
from vit_jax.models.layers import Head, as_input, split_by_example
from vit_jax.models.parts import Parts
from vit_jax.models.pooling import CLASS_TOKEN, MAPS, AttentionPooling
from vit_jax.models.relative_bias import TABLE
from vit_jax.models.rotary import FREQUENCIES
from vit_jax.models.stem import NORMS, stem
from vit_jax.models.vit_costs import ViTCosts
from vit_jax.models.vit_recognition import recognise
from vit_jax.models.windows import Neck

MODEL = config.Model()  # default settings


class PatchEmbedding(nn.Module):
  """x_p E + b for each P x P patch x_p of an image or of a map (equation 1).

  This equals a P x P convolution with stride P. E is its kernel, (P, P, C, D) as in the published
  weights; patches that are no squares have (P, Q, C, D). For a convolution the TPU compiler puts
  the batch innermost and pads 8 images to 128; a matmul avoids this.

  Attributes:
    patch: P, or (P, Q).
    width: D.
    dtype: type of the computation.
    bias: whether there is a b.
  """

  patch: Size
  width: int
  dtype: jnp.dtype
  bias: bool = True

  @nn.compact
  def __call__(self, x: jax.Array) -> jax.Array:
    """(B, H, W, C), H and W divisible by P and Q -> (B, H W / (P Q), D), in raster order."""
    rows, columns = sides(self.patch)
    batch, height, width, channels = x.shape
    shape = (rows, columns, channels, self.width)
    kernel = self.param("kernel", nn.initializers.lecun_normal(), shape)
    bias = self.param("bias", nn.initializers.zeros, (self.width,)) if self.bias else None
    x, kernel, bias = nn.dtypes.promote_dtype(x, kernel, bias, dtype=self.dtype)
    x = x.reshape(batch, height // rows, rows, width // columns, columns, channels)
    y = jnp.einsum("byixjc,ijcd->byxd", x, kernel)
    if self.bias:
      y = y + bias
    return y.reshape(batch, -1, self.width)


# Attention heads and the hidden channels of MLPs are split over "model". The axes are those of the
# last dimensions, so the rules hold for single and for stacked blocks.
SHARDING = (
  (r".*/(query|key|value)/(kernel|bias)|.*/pos_embedding_relative", ("model", None)),
  (rf".*/{FREQUENCIES}", ("model", None)),
  (rf".*/{TABLE}|.*/relative_bias/Dense_1/(kernel|bias)", ("model",)),
  (r".*/out/kernel", ("model", None, None)),
  (r".*/MlpBlock_\w+/(Dense_0|Dense_gate)/(kernel|bias)", ("model",)),
  (r".*/MlpBlock_\w+/Dense_1/kernel", ("model", None)),
  (".*", LARGEST),
)


class ViT(ViTCosts, nn.Module):
  """Vision Transformer.

  Attributes:
    patch: side of a patch, or (height, width), in pixels or, for a hybrid, in positions of the
      stem's map.
    depth: number of blocks (Table 1: layers).
    width: hidden size D.
    mlp_dim: hidden size of the MLPs.
    heads: attention heads.
    num_classes: outputs of the head.
    stem_width: for a hybrid (Section 3.1), channels of the root of its ResNet; 0: no ResNet.
    stages: the residual units in each stage of that ResNet; () is only the root.
    axial: attention along rows, then along columns, each with an MLP (Appendix D.6).
    pool: "class_token" (the paper's); "gap", the mean over the patch outputs (Appendix D.3); or
      "map", attention pooling of these, as some published weights have. Axial models have no class
      token. Later models have others: "gap_beside_token", the same mean in a model that has a class
      token too; "map_of_all", attention pooling of registers and patches; "map_with_token", of
      class token, registers and patches; and "distilled", the class token and a distillation token
      behind it (Touvron et al., "DeiT", 2021, arXiv 2012.12877, Section 4), side by side: a head
      over both computes what the mean of a head over each does.
    representation_layer: a dense layer of size D and tanh before the head, as in pre-training.
    positions: "1d", "2d", "relative" or "none" (Appendix D.4, Table 8); or fixed sines and cosines
      of row and column, "sincos2d" or "sincos2d_mae" (vit_jax/models/positions.py); or biases of
      the attention logits, "relative_table" or "relative_mlp" (vit_jax/models/relative_bias.py).
    position_place: where "1d" and "2d" are added: at the "stem"; at the input of "every_layer",
      with separate embeddings for each; or "every_layer_shared", with the same embeddings. Biases
      of logits are each block's own, or shared with "every_layer_shared".
    dropout: rate, after the position embeddings and after each dense layer, except the q/k/v
      projections and the two layers of the head (Appendix B.1).
    head_bias, head_std: initial value of the head's bias; standard deviation of its kernel.
    dtype: type of the computation; parameters are float32.
    attention: "cudnn", on GPUs, "heads_first", for CPUs, or "xla"; "auto" computes like "xla".
    scan: stack the blocks under one `nn.scan`.
    remat: "none", "dots" (recompute all but the outputs of dense layers) or "everything".
    activation: of the MLPs, "gelu_tanh" (of the published weights), "gelu" (exact), or another key
      of `layers.ACTIVATIONS`.
    norm_epsilon: added to the variance in every LayerNorm.
    stem_norms: the normalisation in that ResNet, a key of `stem.NORMS`.

  The paper's models have none of the following:
    registers: learned tokens that stand for no patch, behind the class token, with position
      embeddings of their own in "1d" (Darcet et al., "Vision Transformers need registers", 2023).
    qk_norm: a norm of queries and keys; see `vit_jax.models.attention.Attention`.
    norm, norm_place, mlp, mlp_norm, attention_norm, qkv_bias, dense_bias, kv_heads, differential,
      layout, parallel_branches, window, relative_axes, rotary: options of the blocks; see
      `vit_jax.models.parts.Parts`.
    kv_heads_from: the first and the last so many blocks have all heads in spite of `kv_heads`.
    whole_depth: the number of blocks of the model of which these are the first; 0: these are all.
    rotary_side: rows and columns of the grid that the places of `rotary` are scaled to; 0: no
      scaling. See `vit_jax.models.rotary.places`.
    global_blocks: blocks, counted from 0, whose attention is over the image in spite of `window`.
    neck: layers behind the blocks, "none", "norm" or "convolutions"; see
      `vit_jax.models.windows.Neck`.
    neck_dim: channels of these convolutions.
    relative_dim: hidden channels of the MLP of positions="relative_mlp".
    first_norm: a norm before the blocks, of the "patches" before they get positions, or of all
      "tokens" behind them (Radford et al., "CLIP", 2021, arXiv 2103.00020); or "none".
    final_norm: a norm of the "tokens" behind the blocks, as in the paper; of the "pooled" vector,
      as in BEiT; or "none".
    patch_bias: whether the patch embedding has a bias.
    channels: of the images.
    pool_heads, pool_mlp_dim: of attention pooling; 0: those of the blocks.
    layer_scale: a learned factor for each channel of the outputs of attention and MLP.
    layer_scale_place: of "both", or of "attention" alone.
    layer_scale_init: its initial value.
    stochastic_depth: rate at which training drops the output of an attention or an MLP for an
      image; `stochastic_depth_rule` says how it depends on the block. See
      `vit_jax.models.encoder`.
  """

  sharding = SHARDING

  patch: Size
  depth: int
  width: int
  mlp_dim: int
  heads: int
  num_classes: int = 1000
  stem_width: int = 0
  stages: tuple[int, ...] = ()
  axial: bool = False
  pool: str = "class_token"
  representation_layer: bool = MODEL.representation_layer
  positions: str = "1d"
  position_place: str = "stem"
  dropout: float = MODEL.dropout
  head_bias: float = MODEL.head_bias
  head_std: float = MODEL.head_std
  dtype: jnp.dtype = jnp.float32
  attention: str = MODEL.attention
  scan: bool = MODEL.scan
  remat: str = MODEL.remat
  activation: str = "gelu_tanh"
  norm_epsilon: float = 1e-6
  stem_norms: str = "published"
  registers: int = 0
  qk_norm: bool = False
  norm: str = "layer"
  norm_place: str = "before"
  first_norm: str = "none"
  final_norm: str = "tokens"
  mlp: str = "plain"
  mlp_norm: bool = False
  attention_norm: bool = False
  qkv_bias: str = "all"
  dense_bias: bool = True
  patch_bias: bool = True
  channels: int = 3
  kv_heads: int = 0
  kv_heads_from: int = 0
  whole_depth: int = 0
  differential: bool = False
  layout: str = "sequential"
  parallel_branches: int = 1
  window: int = 0
  global_blocks: tuple[int, ...] = ()
  relative_axes: bool = False
  neck: str = "none"
  neck_dim: int = 0
  rotary: str = "none"
  rotary_side: int = 0
  relative_dim: int = 0
  pool_heads: int = 0
  pool_mlp_dim: int = 0
  layer_scale: bool = False
  layer_scale_place: str = "both"
  layer_scale_init: float = MODEL.layer_scale_init
  stochastic_depth: float = MODEL.stochastic_depth
  stochastic_depth_rule: str = MODEL.stochastic_depth_rule

  def __call__(self, images: jax.Array, *, train: bool) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Classifies images with the stages below, one after another.

    You can call one stage, `model.apply(variables, images, method="embed")`, or write a function
    of the module that calls several stages and does other things between them,
    `model.apply(variables, images, method=function)`.

    Args:
      images: (B, H, W, channels) in [-1, 1]; H and W divisible by `patch`.
      train: whether to use dropout, which needs an rng named "dropout".

    Returns:
      logits (B, num_classes) float32, and the result of `features`.

    Raises:
      ValueError: the patch size does not divide the image size, or the images are integers or
        have another number of channels.
    """
    features = self.features(images, train=train)
    return self.classify(features["pre_logits"]), features

  def features(self, images: jax.Array, *, train: bool) -> dict[str, jax.Array]:
    """All stages but the head; arguments as in the call.

    Returns:
      "patches" (B, N, D), the encoder's output at the patches, and "pre_logits" (B, D), the input
      of the head.
    """
    grid = self.grid(*images.shape[1:3])
    x = self.add_positions(self.embed(images), grid, train=train)
    x = self.encode(x, grid, train=train)
    return {"patches": self.patches(x), "pre_logits": self.represent(x)}

  @nn.compact
  def embed(self, images: jax.Array) -> jax.Array:
    """Patch embedding (equation 1) of the images or a hybrid's map: (B, H, W, C) -> (B, N, D)."""
    x = as_input(images, self.channels, self.dtype)
    if self.stem_width:
      norms = NORMS[self.stem_norms]
      options = dict(norms=norms, dtype=self.dtype, policy=self.remat)
      x = stem(x, self.stages, self.stem_width, **options)
    embedding = PatchEmbedding(
      self.patch, self.width, self.dtype, self.patch_bias, name="embedding"
    )
    x = embedding(x)
    if self.first_norm == "patches":
      x = self.parts.norm_of(self.dtype, self.norm_epsilon, "embedding_norm")(x)
    return x

  @nn.compact
  def add_positions(self, x: jax.Array, grid: tuple[int, int], *, train: bool) -> jax.Array:
    """Learned tokens, position embeddings and dropout: (B, N, D) -> (B, tokens_before() + N, D).

    Args:
      x: patch embeddings, in raster order.
      grid: rows and columns of patches, from `grid`.
      train: as in the call.
    """
    for name, (count, init) in reversed(self.learned_tokens().items()):
      tokens = self.param(name, init, (1, count, self.width)).astype(x.dtype)
      x = jnp.concatenate([jnp.broadcast_to(tokens, (x.shape[0], count, self.width)), x], axis=1)
    return self._encoder(grid).add_positions(x, train=train)

  @nn.compact
  def encode(self, x: jax.Array, grid: tuple[int, int], *, train: bool) -> jax.Array:
    """The blocks, the norms around them and the neck: tokens -> as many tokens.

    Args:
      x: the result of `add_positions`.
      grid, train: as for `add_positions`.
    """
    x = self._encoder(grid)(x, train=train)
    if self.neck != "none":
      x = Neck(self.neck_dim, self.dtype, name="neck")(x, grid)
    return x

  @nn.compact
  def represent(self, x: jax.Array) -> jax.Array:
    """Pooling, a norm and a representation layer if the model has them: encoded tokens -> (B, D).

    With pool="distilled" the result is (B, 2 D).
    """
    y = self.normed(split_by_example(self._pooled(x)))
    if self.representation_layer:
      y = jnp.tanh(nn.Dense(self.width, dtype=self.dtype, name="pre_logits")(y))
    return y

  @nn.compact
  def normed(self, y: jax.Array) -> jax.Array:
    """As `Layered.normed`."""
    if self.final_norm == "pooled":
      y = self.parts.norm_of(self.dtype, self.norm_epsilon, "pooled_norm")(y)
    return y

  @nn.compact
  def classify(self, y: jax.Array) -> jax.Array:
    """The head: (B, D) -> logits (B, num_classes) float32."""
    return Head(self.num_classes, self.head_bias, self.dtype, self.head_std, name="head")(y)

  @nn.nowrap
  def learned_tokens(self) -> dict[str, tuple[int, nn.initializers.Initializer]]:
    """{name: (number, initializer)} of the learned tokens before the patches, in their order.

    "1d" position embeddings have an entry for each of these tokens, the others zeros.
    """
    tokens = {}
    if self.pool in CLASS_TOKEN:
      tokens["cls"] = (1, nn.initializers.zeros)
    if self.pool == "distilled":
      tokens["distillation_tokens"] = (1, nn.initializers.normal(0.02))
    if self.registers:
      tokens["register_tokens"] = (self.registers, nn.initializers.normal(0.02))
    return tokens

  @nn.nowrap
  def tokens_before(self) -> int:
    """As `Inspectable.tokens_before`."""
    return sum(count for count, _ in self.learned_tokens().values())

  @nn.nowrap
  def patches(self, x: jax.Array) -> jax.Array:
    """The tokens of the patches."""
    return x[:, self.tokens_before() :]

  @nn.nowrap
  def _pooled(self, x):
    """Tokens -> (B, D), pooled according to `pool`."""
    if self.pool == "class_token":
      return x[:, 0]
    if self.pool == "distilled":
      return x[:, :2].reshape(len(x), -1)
    if self.pool not in MAPS:
      return self.patches(x).mean(axis=1)
    pooling = AttentionPooling(
      mlp_dim=self.pool_mlp_dim or self.mlp_dim,
      heads=self.pool_heads or self.heads,
      dtype=self.dtype,
      attention=self.attention,
      activation=self.activation,
      norm_epsilon=self.norm_epsilon,
      norm=self.norm,
      name="MAPHead_0",
    )
    return pooling(self.patches(x) if self.pool == "map" else x)

  @property
  def branches(self) -> Branches:
    """The options of the residual branches of all blocks."""
    return _with_fields_of(self, Branches)

  @property
  def parts(self) -> Parts:
    """The options of all blocks in which they may differ from the paper's."""
    return _with_fields_of(self, Parts)

  @nn.nowrap
  def _encoder(self, grid):
    """The encoder for this grid of patches; every stage uses the same parameters."""
    own = dict(grid=grid, before=self.tokens_before(), name="Transformer")
    return _with_fields_of(self, Encoder, **own)


def _with_fields_of(model: ViT, kind: type, **own):
  """The dataclass `kind` with these fields, and else with the model's values of the same names."""
  names = {field.name for field in dataclasses.fields(kind)} - own.keys() - {"parent"}
  return kind(**{name: getattr(model, name) for name in names}, **own)


# Shapes of the Transformer encoder (Table 1 of the paper; b, of Figure 4, is B with sizes halved;
# So400m: Alabdulmohsin et al., "Getting ViT in shape", 2023).
SIZES = {
  "Ti": dict(depth=12, width=192, mlp_dim=768, heads=3),
  "S": dict(depth=12, width=384, mlp_dim=1536, heads=6),
  "b": dict(depth=12, width=384, mlp_dim=1536, heads=6),
  "B": dict(depth=12, width=768, mlp_dim=3072, heads=12),
  "L": dict(depth=24, width=1024, mlp_dim=4096, heads=16),
  "So400m": dict(depth=27, width=1152, mlp_dim=4304, heads=16),
  "H": dict(depth=32, width=1280, mlp_dim=5120, heads=16),
}

_VIT = re.compile(r"(?P<axial>Axial-)?ViT-(?P<size>\w+)/(?P<patch>[1-9]\d{0,3})", re.ASCII)
_HYBRID = re.compile(
  r"R(?:(?P<depth>\d+)(?:x(?P<factor>[1-9]\d?))?)?\+ViT-(?P<size>\w+)/(?P<stride>\d\d?)"
  r"(?:p(?P<patch>[1-9]\d?))?",
  re.ASCII,
)


def fields_of_name(name: str) -> dict | None:
  """As `Family.fields`."""
  match = _VIT.fullmatch(name) or _HYBRID.fullmatch(name)
  if not match or match["size"] not in SIZES:
    return None
  size = SIZES[match["size"]]
  if match.re is _VIT:
    fields = size | dict(patch=int(match["patch"]))
    if match["axial"]:
      # Attention along rows and columns has no place for a class token.
      fields |= dict(axial=True, pool="gap")
    return fields
  stem = _stem(match["depth"], int(match["stride"]), match["patch"])
  if stem is None:
    return None
  return size | stem | dict(stem_width=64 * int(match["factor"] or 1))


def _stem(depth: str | None, stride: int, patch: str | None) -> dict | None:
  """Stages and patch size of a hybrid whose map has this stride; None if unknown.

  Patches are 1 x 1 on the map unless the name says `patch`.

  With /32 the tokens are the output of stage 4. With /16 the units of stage 4 are added to stage 3
  (Section 3.1). "R+" has only the root, with patches of 8 x 8. Its published name says 16, although
  its tokens are 32 pixels apart.
  """
  if depth is None:
    if stride != 16 or patch:
      return None
    return dict(stages=(), patch=8)
  if depth not in STAGES or stride not in (16, 32):
    return None
  one, two, three, four = STAGES[depth]
  stages = (one, two, three, four)
  if stride == 16:
    stages = (one, two, three + four)
  return dict(stages=stages, patch=int(patch or 1))


def alike(module: ViT) -> list[str]:
  """As `Family.alike`: all known sizes, and for hybrids all known depths of ResNets."""
  if not module.stem_width:
    axial = "Axial-" if module.axial else ""
    return [f"{axial}ViT-{size}/{max(sides(module.patch))}" for size in SIZES]
  if not module.stages:
    return [f"R+ViT-{size}/16" for size in SIZES]
  factors = [f"x{max(module.stem_width // 64, 1)}", ""]  # 1 if the name has none
  stems = [f"R{depth}{factor}" for depth in STAGES for factor in factors]
  return [f"{stem}+ViT-{size}/{n}" for stem in stems for size in SIZES for n in (16, 32)]


FAMILY = Family(
  module=ViT,
  names=(
    *("ViT-Ti/16", "ViT-S/16", "ViT-S/32", "ViT-b/16", "ViT-b/32", "ViT-B/8", "ViT-B/16"),
    *("ViT-B/32", "ViT-L/16", "ViT-L/32", "ViT-So400m/14", "ViT-H/14"),
    *("R+ViT-Ti/16", "R26+ViT-S/32", "R26+ViT-B/32"),
    *("R50x1+ViT-B/32", "R50x1+ViT-B/16", "R50x1+ViT-L/32", "R50x1+ViT-L/16"),
    *("Axial-ViT-B/32", "Axial-ViT-B/16"),
  ),
  fields=fields_of_name,
  recognise=recognise,
  alike=alike,
)
