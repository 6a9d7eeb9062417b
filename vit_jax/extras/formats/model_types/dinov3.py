"""The ViTs of DINOv3 in Transformers (Simeoni et al., 2025): rotary positions, and registers."""

from vit_jax.extras.formats.model_type import ModelType, rules
from vit_jax.extras.formats.model_types.blocks import MLP, block, sizes
from vit_jax.weights.card import one_of, whole
from vit_jax.weights.translation import CONVOLUTION, DENSE, SAME, Table, layer, norm

PLAIN = "DINOv3ViTModel"


def _sizes(module) -> dict:
  return sizes(module) | {
    "num_register_tokens": module.registers,
    "query_bias": module.qkv_bias != "none",
    "key_bias": module.qkv_bias == "all",
    "value_bias": module.qkv_bias != "none",
    "proj_bias": module.dense_bias,
    "mlp_bias": module.dense_bias,
    "use_gated_mlp": module.mlp == "gated",
  }


DINOV3 = ModelType(
  plain=PLAIN,
  names=Table(
    ("cls", "embeddings.cls_token", SAME),
    ("register_tokens", "embeddings.register_tokens", SAME),
    *layer("embedding", "embeddings.patch_embeddings", CONVOLUTION),
    *block(
      "layer.{0}",
      norms=("norm1", "norm2"),
      attention=tuple(f"attention.{name}_proj" for name in ("q", "k", "v", "o")),
      mlp=("mlp.up_proj", "mlp.down_proj"),
      scales=("layer_scale1.lambda1", "layer_scale2.lambda1"),
    ),
    *layer(f"{MLP}/Dense_gate", "layer.{0}.mlp.gate_proj", DENSE),
    *norm("Transformer/encoder_norm", "norm"),
  ),
  prefix="model.",
  computed=rules(
    PLAIN,
    kinds=("dinov3_vit",),
    layer_norm_eps=1e-5,
    hidden_size=384,
    num_hidden_layers=12,
    num_attention_heads=6,
    intermediate_size=1536,
    num_register_tokens=0,
    rope_theta=(one_of(100), 100.0),
    query_bias=True,
    key_bias=False,
    value_bias=True,
    proj_bias=True,
    mlp_bias=True,
    use_gated_mlp=False,
    apply_layernorm=(one_of(True), True),
  ),
  sizes=_sizes,
  fields={
    "positions": one_of("none"),
    "rotary": one_of("dinov3"),
    "registers": whole(1, 1000),
    "layer_scale": one_of(True),
    "qkv_bias": one_of("all", "none", "no_key"),
    "dense_bias": one_of(True, False),
    "mlp": one_of("plain", "gated"),
  },
  known=lambda settings: {"rotary": "dinov3"},
  position_resizing="bicubic",
  resizes=True,
  processor="DINOv3ViT",
  left_out=r"embeddings\.mask_token|rope_embeddings\..*",
)
