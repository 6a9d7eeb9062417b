"""Files of DINOv3's authors, of DINOv2's with gated MLPs, and OpenCLIP's: outputs of Transformers.

The names in such files are made here from a model of Transformers, or of timm, with random weights.
Needs torch, timm and transformers (the extra `agreement`); skipped, with this reason, without them.
"""

import importlib
import json
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


def assert_equal_features(path, arrays, model, before):
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
  periods = torch.tensor(100.0) ** (torch.arange(8, dtype=torch.bfloat16) / 8)
  others = {"rope_embed.periods": periods.float().numpy()}
  others |= {f"local_cls_norm.{kind}": np.ones(64, np.float32) for kind in ("weight", "bias")}
  assert_equal_features(tmp_path / "w.safetensors", arrays | masks | others, model, before=3)


def test_dinov2_with_gated_mlps(tmp_path):
  config = transformers.Dinov2Config(**SMALL, image_size=32, use_swiglu_ffn=True)
  model = drawn(transformers.Dinov2Model(config))
  arrays = own_names(model, DINOV2)
  for kind in ("weight", "bias"):
    joined(arrays, [f"attention.{part}_proj.{kind}" for part in "qkv"], f"attn.qkv.{kind}")
    joined(arrays, [f"mlp.{part}_proj.{kind}" for part in ("gate", "up")], f"mlp.w12.{kind}")
  arrays = {name.replace("mlp.down_proj", "mlp.w3"): x for name, x in arrays.items()}
  assert_equal_features(tmp_path / "w.safetensors", arrays, model, before=1)


OPEN_CLIP = (
  (r"embeddings\.class_embedding", "class_embedding"),
  (r"embeddings\.position_embedding\.weight", "positional_embedding"),
  (r"embeddings\.patch_embedding", "conv1"),
  (r"pre_layrnorm", "ln_pre"),
  (r"post_layernorm", "ln_post"),
  (r"encoder\.layers\.", "transformer.resblocks."),
  (r"layer_norm([12])", r"ln_\1"),
  (r"self_attn\.out_proj", "attn.out_proj"),
  (r"mlp\.fc1", "mlp.c_fc"),
  (r"mlp\.fc2", "mlp.c_proj"),
  (r"vision_model\.", ""),
)


@pytest.mark.parametrize("act", ["quick_gelu", "gelu"])
def test_open_clip(tmp_path, act):
  settings = SMALL | dict(intermediate_size=96, image_size=32, projection_dim=7, hidden_act=act)
  config = transformers.CLIPVisionConfig(**settings)
  model = drawn(transformers.CLIPVisionModelWithProjection(config))
  arrays = {}
  for name, x in model.state_dict().items():
    for pattern, new in OPEN_CLIP:
      name = re.sub(pattern, new, name)
    arrays[name] = x.numpy()
  arrays["proj"] = arrays.pop("visual_projection.weight").T
  for kind in ("weight", "bias"):
    joined(arrays, [f"self_attn.{part}_proj.{kind}" for part in "qkv"], f"attn.in_proj_{kind}")
  arrays = {f"visual.{name}": np.ascontiguousarray(x) for name, x in arrays.items()}
  text = {"logit_scale": np.ones(1, "f4"), "transformer.resblocks.0.ln_1.bias": np.ones(3, "f4")}
  safetensors.numpy.save_file(arrays | text, tmp_path / "open_clip_model.safetensors")
  half = dict(mean=[0.5] * 3, std=[0.5] * 3)
  vision = dict(image_size=32, width=64, head_width=32, patch_size=8)
  config = dict(model_cfg=dict(vision_cfg=vision, quick_gelu=act == "quick_gelu"))
  (tmp_path / "open_clip_config.json").write_text(json.dumps(config | dict(preprocess_cfg=half)))
  loaded = read_model(tmp_path)
  images = families.images(32, batch=1)
  with torch.no_grad():
    theirs = model(torch.from_numpy(images.transpose(0, 3, 1, 2).copy())).image_embeds.numpy()
  ours, _ = loaded.module.apply({"params": loaded.params}, images, train=False)
  assert np.abs(ours - theirs).max() < 1e-5 * np.abs(theirs).max()
  again = read_model(tmp_path / "open_clip_model.safetensors")
  assert (again.module, again.card) == (loaded.module, loaded.card)
  families.assert_same_bits(again.params, loaded.params)


# Of OpenCLIP's TimmModel: timm's name, pool, proj.
@pytest.mark.parametrize(
  ("name", "pool", "proj"),
  [
    ("vit_base_patch16_siglip_224", "map", "none"),
    ("vit_base_patch16_224", "", "linear"),  # BiomedCLIP
    ("vit_base_patch16_clip_224", "token", None),
  ],
)
def test_encoders_of_timm_in_open_clip(tmp_path, name, pool, proj):
  timm = importlib.import_module("tests.agreement.timm_models").timm
  options = dict(embed_dim=64, num_heads=2, depth=1, img_size=32)
  pools = dict(global_pool=pool) if pool else {}
  trunk = drawn(timm.create_model(name, num_classes=7 if proj is None else 0, **options, **pools))
  projection = drawn(torch.nn.Linear(64, 7, bias=False))
  arrays = {f"visual.trunk.{key}": x.numpy() for key, x in trunk.state_dict().items()}
  head = torch.nn.Identity()
  if proj == "linear":
    head = projection
    arrays["visual.head.proj.weight"] = projection.weight.detach().numpy()
  safetensors.numpy.save_file(arrays, tmp_path / "open_clip_model.safetensors")
  vision = dict(timm_model_name=name, timm_pool=pool, timm_proj=proj, image_size=32)
  vision["timm_model_kwargs"] = options
  mean, deviation = [0.4, 0.5, 0.6], [0.2, 0.3, 0.4]
  config = dict(model_cfg=dict(vision_cfg=vision), preprocess_cfg=dict(mean=mean, std=deviation))
  (tmp_path / "open_clip_config.json").write_text(json.dumps(config))
  loaded = read_model(tmp_path).at_size()
  images = families.images(32, batch=1)
  pixels = ((images + 1) / 2 - np.float32(mean)) / np.float32(deviation)
  with torch.no_grad():
    theirs = head(trunk(torch.from_numpy(pixels.transpose(0, 3, 1, 2).copy()))).numpy()
  ours, features = loaded.module.apply({"params": loaded.params}, images, train=False)
  assert loaded.card.projection == loaded.has_head == (proj != "none")
  found = ours if loaded.has_head else features["pre_logits"]
  assert np.abs(found - theirs).max() < 1e-5 * np.abs(theirs).max()
