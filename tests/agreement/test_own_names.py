"""Files of DINOv3's authors, and of DINOv2's with gated MLPs: the outputs of Transformers' models.

The names in such files are made here from a model of Transformers with random weights. Needs torch
and transformers (the extra `agreement`); skipped, with this reason, without them.
"""

import re

import numpy as np
import pytest
import safetensors.numpy

from tests.weights import families
from vit_jax.inference.model import read_model

torch = pytest.importorskip("torch", reason="torch is not installed (extra `agreement`)")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
# Up to a width of 64, models of timm have two heads.
SMALL = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=2, patch_size=8)
SHARED = (
  (r"embeddings\.(cls_token|mask_token)", r"\1"),
  (r".*layer\.", "blocks."),
  (r"layer_scale([12])\.lambda1", r"ls\1.gamma"),
  (r"layernorm|^norm\b", "norm"),
)
DINOV3 = (
  (r"embeddings\.patch_embeddings", "patch_embed.proj"),
  (r"embeddings\.register_tokens", "storage_tokens"),
  (r"attention\.o_proj", "attn.proj"),
  (r"mlp\.gate_proj", "mlp.w1"),
  (r"mlp\.up_proj", "mlp.w2"),
  (r"mlp\.down_proj", "mlp.w3"),
)
DINOV2 = (
  (r"embeddings\.patch_embeddings\.projection", "patch_embed.proj"),
  (r"embeddings\.position_embeddings", "pos_embed"),
  (r"attention\.o_proj", "attn.proj"),
)


def drawn(model):
  generator = torch.Generator().manual_seed(0)
  with torch.no_grad():
    for x in model.parameters():
      x.copy_(torch.randn(x.shape, generator=generator) * (0.3 if x.ndim < 4 else 0.05))
  return model.eval()


def joined(arrays, parts, new):
  """Joins the arrays whose names end in one of the parts, in their order."""
  for name in [name for name in arrays if name.endswith(parts[0])]:
    stem = name.removesuffix(parts[0])
    arrays[stem + new] = np.concatenate([arrays.pop(stem + part) for part in parts])


def own_names(model, rules):
  arrays = {}
  for name, x in model.state_dict().items():
    for pattern, new in (*rules, *SHARED):
      name = re.sub(pattern, new, name)
    arrays[name] = x.numpy()
  return arrays


def compared(path, arrays, model, before):
  safetensors.numpy.save_file({n: np.ascontiguousarray(x) for n, x in arrays.items()}, path)
  loaded = read_model(path)
  images = families.images(32, batch=1)
  with torch.no_grad():
    theirs = model(torch.from_numpy(images.transpose(0, 3, 1, 2).copy())).last_hidden_state.numpy()
  params = loaded.at_size(32).params
  _, features = loaded.module.apply({"params": params}, images, train=False)
  for ours, expected in (
    (features["pre_logits"], theirs[:, 0]),
    (features["patches"], theirs[:, before:]),
  ):
    assert np.abs(ours - expected).max() < 1e-5 * np.abs(expected).max()


def test_dinov3(tmp_path):
  config = transformers.DINOv3ViTConfig(
    **SMALL, intermediate_size=96, num_register_tokens=2, use_gated_mlp=True, hidden_act="silu"
  )
  model = drawn(transformers.DINOv3ViTModel(config))
  arrays = own_names(model, DINOV3)
  biases = {name: x for name, x in arrays.items() if name.endswith("q_proj.bias")}
  masks = {}
  for name, x in biases.items():
    stem = name.removesuffix("q_proj.bias")
    arrays[f"{stem}k_proj.bias"] = np.ones_like(x)  # without effect, by the mask
    mask = np.repeat(np.float32([1, 0, 1]), x.size)
    masks[stem.replace("attention", "attn") + "qkv.bias_mask"] = mask
  for kind in ("weight", "bias"):
    parts = [f"attention.{part}_proj.{kind}" for part in "qkv"]
    joined(arrays, parts, f"attn.qkv.{kind}")
  others = {"rope_embed.periods": np.ones(8, np.float32)}
  others |= {f"local_cls_norm.{kind}": np.ones(64, np.float32) for kind in ("weight", "bias")}
  compared(tmp_path / "w.safetensors", arrays | masks | others, model, before=3)


def test_dinov2_with_gated_mlps(tmp_path):
  config = transformers.Dinov2Config(**SMALL, image_size=32, use_swiglu_ffn=True)
  model = drawn(transformers.Dinov2Model(config))
  arrays = own_names(model, DINOV2)
  for kind in ("weight", "bias"):
    joined(arrays, [f"attention.{part}_proj.{kind}" for part in "qkv"], f"attn.qkv.{kind}")
    joined(arrays, [f"mlp.{part}_proj.{kind}" for part in ("gate", "up")], f"mlp.w12.{kind}")
  arrays = {name.replace("mlp.down_proj", "mlp.w3"): x for name, x in arrays.items()}
  compared(tmp_path / "w.safetensors", arrays, model, before=1)
