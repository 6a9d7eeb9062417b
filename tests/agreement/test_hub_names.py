"""Names of the Hugging Face Hub: our models have what the configurations of Transformers say.

Needs transformers (the extra `agreement`); skipped, with this reason, without it. Its defaults are
the models of size "base"; that equal configurations give equal outputs is tested with weights.
"""

import pytest

from vit_jax import models

ACTIVATIONS = {"gelu": "gelu", "gelu_pytorch_tanh": "gelu_tanh"}


@pytest.mark.parametrize(
  ("name", "kind", "pool"),
  [
    ("google/vit-base-patch16-224", "ViT", "class_token"),
    ("facebook/deit-base-patch16-224", "DeiT", "class_token"),
    ("facebook/vit-mae-base", "ViTMAE", "class_token"),
    ("facebook/vit-msn-base", "ViTMSN", "class_token"),
    ("facebook/dinov2-base", "Dinov2", "class_token"),
    ("facebook/dinov2-with-registers-base", "Dinov2WithRegisters", "class_token"),
    ("google/siglip-base-patch16-224", "SiglipVision", "map"),
  ],
)
def test_a_name_is_the_model_of_its_configuration(name, kind, pool):
  transformers = pytest.importorskip("transformers", reason="transformers is not installed")
  of_tokens = "Registers" in kind
  config = getattr(transformers, f"{kind}Config")(**(dict(patch_size=14) if of_tokens else {}))
  width = config.hidden_size
  expected = models.create("ViT-B/16").clone(
    patch=config.patch_size,
    depth=config.num_hidden_layers,
    width=width,
    mlp_dim=getattr(config, "intermediate_size", None) or width * config.mlp_ratio,
    heads=config.num_attention_heads,
    pool=pool,
    activation=ACTIVATIONS[config.hidden_act],
    norm_epsilon=config.layer_norm_eps,
    registers=getattr(config, "num_register_tokens", 0),
    layer_scale=hasattr(config, "layerscale_value"),
    layer_scale_init=getattr(config, "layerscale_value", 1e-4),
  )
  assert models.create(name) == expected


@pytest.mark.parametrize(
  ("name", "kind", "settings"),
  [
    ("facebook/deit-base-distilled-patch16-224", "DeiT", {}),
    ("openai/clip-vit-base-patch32", "CLIPVision", {}),
    ("microsoft/beit-base-patch16-224", "Beit", {}),
    ("facebook/dinov3-vits16-pretrain-lvd1689m", "DINOv3ViT", {}),
    (
      "facebook/dinov2-giant",
      "Dinov2",
      dict(hidden_size=1536, num_hidden_layers=40, num_attention_heads=24, patch_size=14),
    ),
  ],
)
def test_the_sizes_of_a_name(name, kind, settings):
  """The other fields are tested with small models (test_model_types.py)."""
  transformers = pytest.importorskip("transformers", reason="transformers is not installed")
  config = getattr(transformers, f"{kind}Config")(**settings)
  module = models.create(name)
  hidden = getattr(config, "intermediate_size", None) or 4096  # SwiGLU of DINOv2's giant
  assert (module.patch, module.depth, module.width) == (
    config.patch_size,
    config.num_hidden_layers,
    config.hidden_size,
  )
  assert (module.heads, module.mlp_dim) == (config.num_attention_heads, hidden)
  assert module.norm_epsilon == getattr(config, "layer_norm_eps", 1e-6)


@pytest.mark.parametrize("size", "sh")
def test_the_hub_has_the_plus_of_dinov3_behind_the_patch(size):
  module = models.create(f"facebook/dinov3-vit{size}16plus-pretrain-lvd1689m")
  assert (module.patch, module.mlp) == (16, "gated")
  assert module == models.create(f"facebook/dinov3-vit{size}plus16-pretrain-lvd1689m")
