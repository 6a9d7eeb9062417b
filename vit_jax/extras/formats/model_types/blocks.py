"""What model types share: the rows of an encoder block, and the names and sizes of a ViT."""

from vit_jax.weights.card import one_of
from vit_jax.weights.published import POSITIONS
from vit_jax.weights.translation import (
  CONVOLUTION,
  DENSE,
  FROM_HEADS,
  SAME,
  Row,
  Table,
  layer,
  norm,
  to_heads,
)

BLOCK = "Transformer/encoderblock_{0}"
ATTENTION = f"{BLOCK}/MultiHeadDotProductAttention_1"
MLP = f"{BLOCK}/MlpBlock_3"


def block(
  theirs: str,
  *,
  norms: tuple[str, str],
  attention: tuple[str, str, str, str],
  mlp: tuple[str, str],
  scales: tuple[str, ...] = (),
) -> tuple[Row, ...]:
  """The rows of all blocks.

  Args:
    theirs: how the library's names of a block begin, with {0} for its number.
    norms: the names of the norms before the attention and before the MLP.
    attention: the names of its layers for queries, keys, values and the output.
    mlp: the names of its layers.
    scales: the names of the factors of LayerScale, after the attention and after the MLP.
  """
  first, second = norms
  query, key, value, out = attention
  into, back = mlp
  names = ("LayerScale_1", "LayerScale_3")
  return (
    *norm(f"{BLOCK}/LayerNorm_0", f"{theirs}.{first}"),
    *to_heads(f"{ATTENTION}/query", f"{theirs}.{query}"),
    *to_heads(f"{ATTENTION}/key", f"{theirs}.{key}"),
    *to_heads(f"{ATTENTION}/value", f"{theirs}.{value}"),
    *layer(f"{ATTENTION}/out", f"{theirs}.{out}", FROM_HEADS),
    *norm(f"{BLOCK}/LayerNorm_2", f"{theirs}.{second}"),
    *layer(f"{MLP}/Dense_0", f"{theirs}.{into}", DENSE),
    *layer(f"{MLP}/Dense_1", f"{theirs}.{back}", DENSE),
    *(
      (f"{BLOCK}/{ours}/scale", f"{theirs}.{scale}", SAME)
      for ours, scale in zip(names, scales, strict=False)
    ),
  )


# Names of the layers of an attention, as BERT had them.
OF_BERT = tuple(f"attention.attention.{name}" for name in ("query", "key", "value"))
OF_BERT += ("attention.output.dense",)
OF_VIT = Table(
  ("cls", "embeddings.cls_token", SAME),
  (POSITIONS, "embeddings.position_embeddings", SAME),
  *layer("embedding", "embeddings.patch_embeddings.projection", CONVOLUTION),
  *block(
    "encoder.layer.{0}",
    norms=("layernorm_before", "layernorm_after"),
    attention=OF_BERT,
    mlp=("intermediate.dense", "output.dense"),
  ),
  *norm("Transformer/encoder_norm", "layernorm"),
)
SIZES_OF_VIT = dict(
  hidden_size=768,
  num_hidden_layers=12,
  intermediate_size=3072,
  patch_size=16,
  qkv_bias=(one_of(True), True),
)
OF_CLIP = dict(
  norms=("layer_norm1", "layer_norm2"),
  attention=tuple(f"self_attn.{name}_proj" for name in ("q", "k", "v", "out")),
  mlp=("mlp.fc1", "mlp.fc2"),
)
SIZES = {  # keys of config.json, and the fields of our modules
  "hidden_size": "width",
  "num_hidden_layers": "depth",
  "num_attention_heads": "heads",
  "intermediate_size": "mlp_dim",
  "patch_size": "patch",
}


def sizes(module) -> dict[str, int]:
  """The keys of config.json that give the sizes of most types."""
  return {key: getattr(module, field) for key, field in SIZES.items()}
