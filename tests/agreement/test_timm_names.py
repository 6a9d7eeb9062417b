"""Weights under timm's names: timm loads ours, we load its own, and the logits are the same.

Needs torch and timm (the extra `agreement`); skipped, with this reason, where they are not there.
"""

import copy
import importlib
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from tests import modules
from tests.weights import families
from vit_jax import models, weights
from vit_jax.config import Model
from vit_jax.extras.formats import timm
from vit_jax.inference import export
from vit_jax.inference.model import of_weights, read_model
from vit_jax.models.recognition import differences
from vit_jax.weights import Weights
from vit_jax.weights.card import Card
from vit_jax.weights.fit import for_channels
from vit_jax.weights.format import Heads
from vit_jax.weights.resizing import resize_biases

BOUND = 1e-5
SMALL = dict(img_size=16, patch_size=4, embed_dim=32, depth=2, num_heads=2, mlp_ratio=2)
NO_TOKEN = dict(class_token=False, fc_norm=False)
# For each family: arguments of timm's VisionTransformer.
OURS = {
  "vit": dict(SMALL),
  "gap": SMALL | NO_TOKEN | dict(global_pool="avg"),
  "map": SMALL | NO_TOKEN | dict(global_pool="map"),
  "none": SMALL | dict(pos_embed="none"),
  "later": SMALL | dict(reg_tokens=3, qk_norm=True, init_values=1e-5),
}
# Models of timm, made small: name, arguments.
THEIRS = {
  "tiny": ("vit_tiny_patch16_224", {}),
  "small": ("vit_small_patch16_224", {}),
  "base": ("vit_base_patch32_224", {}),
  "large": ("vit_large_patch14_224", {}),
  "huge": ("vit_huge_patch14_224", {}),
  "deit": ("deit_small_patch16_224", {}),
  "deit3": ("deit3_small_patch16_224", {}),
  "dinov2": ("vit_small_patch14_dinov2", {}),
  "dinov2_registers": ("vit_small_patch14_reg4_dinov2", {}),
  "qk_norm": ("vit_tiny_patch16_224", dict(qk_norm=True)),
  "siglip": ("vit_base_patch16_siglip_224", {}),
  "siglip_tanh": ("vit_base_patch32_siglip_256", {}),
  "siglip_gap": ("vit_base_patch16_siglip_gap_224", {}),
  "gap": ("vit_base_patch16_gap_224", {}),
  "so150m": ("vit_so150m_patch16_reg4_gap_256", {}),
  "so150m_map": ("vit_so150m_patch16_reg4_map_256", {}),
  "plus": ("vit_base_patch16_plus_240", {}),
  "flexible": ("flexivit_small", {}),
  "tips": ("vit_base_patch14_reg1_tipsv2", {}),
  "giantopt": ("vit_giantopt_patch16_siglip_256", {}),
  "dino": ("vit_small_patch16_224.dino", dict(num_classes=0)),
  "mae": ("vit_base_patch16_224.mae", dict(num_classes=0)),
  "no_head": ("vit_tiny_patch16_224", dict(num_classes=0)),
}


@pytest.fixture(scope="module")
def peer():
  """torch, timm and the models of tests/agreement/timm_models.py."""
  return importlib.import_module("tests.agreement.timm_models")


def logits(peer, model, images):
  with peer.torch.no_grad():
    return model.eval()(peer.torch.from_numpy(images.transpose(0, 3, 1, 2).copy())).numpy()


def randomly(peer, model):
  """The model with parameters none of which is zero or alike."""
  generator = peer.torch.Generator().manual_seed(0)
  with peer.torch.no_grad():
    for name, x in model.named_parameters():
      noise = peer.torch.randn(x.shape, generator=generator)
      scale = 0.2 if x.ndim < 2 or "embed" in name or "token" in name else x[0].numel() ** -0.5
      x.copy_(noise * scale + (1 if "norm" in name and name.endswith("weight") else 0))
  return model


def stored(model, folder):
  """The path of a file with the model's parameters, and nothing else."""
  path = folder / "w.safetensors"
  importlib.import_module("safetensors.torch").save_file(model.state_dict(), path)
  return path


@pytest.mark.parametrize("family", OURS)
@pytest.mark.parametrize("head", [True, False])
def test_timm_loads_ours_strictly(peer, tmp_path, family, head):
  params = families.params(family)
  if not head:
    params = {name: x for name, x in params.items() if name != "head"}
  weights.write(tmp_path / "w.safetensors", Weights(params, None))
  model = peer.timm.models.VisionTransformer(
    num_classes=5 if head else 0, act_layer="gelu_tanh", **OURS[family]
  )
  peer.timm.models.load_checkpoint(model, str(tmp_path / "w.safetensors"), strict=True)
  images = families.images()
  loaded = read_model(tmp_path / "w.safetensors")
  ours, features = loaded.module.apply({"params": loaded.params}, images, train=False)
  expected = ours if head else features["pre_logits"]
  assert np.std(expected) > 0.1
  np.testing.assert_allclose(logits(peer, model, images), expected, atol=BOUND, rtol=0)


def made(peer, case):
  name, options = THEIRS[case]
  side = 64 if "patch32" in name else 56 if "patch14" in name else 32
  options = dict(num_classes=5) | options | dict(img_size=side, depth=2)
  return randomly(peer, peer.timm.create_model(name, **options)), side


@pytest.mark.parametrize("case", THEIRS)
def test_a_folder_as_timm_publishes_it(peer, tmp_path, case):
  """Its pixels have another mean and deviation; ours are from -1 to 1."""
  model, side = made(peer, case)
  headless = "num_classes" in THEIRS[case][1]
  classes = None if headless else [f"class {i}" for i in range(5)]
  settings = dict(mean=(0.4, 0.45, 0.5), std=(0.2, 0.25, 0.3), input_size=(3, side, side))
  model.pretrained_cfg = model.pretrained_cfg | settings
  config = dict(label_names=classes) if classes else {}
  peer.timm.models.save_for_hf(
    model, tmp_path / "hub", model_config=config, safe_serialization=True
  )
  loaded = read_model(tmp_path / "hub").at_size()
  assert loaded.card.class_names == tuple(classes or ())
  assert loaded.card.image_size == side <= loaded.card.resize
  named = models.create(THEIRS[case][0], depth=2, qk_norm=case == "qk_norm")
  assert not differences(named, loaded.module)  # the name alone says the same model
  images = families.images(side)
  mean, deviation = np.float32(settings["mean"]), np.float32(settings["std"])
  theirs = logits(peer, model, ((images + 1) / 2 - mean) / deviation)
  ours, features = modules.run(loaded.module, loaded.params, images)
  expected = features["pre_logits"] if headless else ours
  assert np.std(theirs) > 0.1
  np.testing.assert_allclose(expected, theirs, atol=BOUND, rtol=0)
  file = read_model(tmp_path / "hub/model.safetensors").at_size()
  assert (file.module, file.card) == (loaded.module, loaded.card)
  families.assert_same_bits(file.params, loaded.params)
  if "registers" in case:  # written, timm's model has the same shapes
    assert peer_shapes(model) == {k: x.shape for k, x in timm.to_timm(loaded.params).items()}


def peer_shapes(model):
  return {name: tuple(x.shape) for name, x in model.state_dict().items()}


def test_positions_of_an_unclear_number_of_patches_are_refused():
  """9 are of 3 x 3 patches, or of 2 x 2 behind a class token and four registers."""
  params = families.params("later")
  flat = timm.to_timm(params) | {"pos_embed": np.zeros((1, 9, 32), np.float32)}
  flat |= {"reg_token": np.zeros((1, 4, 32), np.float32)}
  with pytest.raises(ValueError, match="its 9 position embeddings may be of that many patches or"):
    timm.from_timm(flat, Heads(2))


def test_a_file_alone_says_what_is_taken_for_granted(peer, tmp_path, caplog):
  model, side = made(peer, "tiny")
  path = stored(model, tmp_path)
  loaded = read_model(path).at_size()
  assert "nothing says how its model computes" in caplog.text
  assert (loaded.card.image_size, loaded.card.model.activation) == (side, "gelu")
  ours, _ = loaded.module.apply({"params": loaded.params}, families.images(side), train=False)
  np.testing.assert_allclose(ours, logits(peer, model, families.images(side)), atol=BOUND, rtol=0)


@pytest.mark.parametrize(
  ("model", "message"),
  [
    ({}, "how many attention heads a model of width 32 has"),
    ("convnext_atto", "is a part that neither"),
    ("eva02_tiny_patch14_224", "nothing tells which rotary positions its model has, if any; put"),
    ("vit_small_patch16_dinov3", "nothing tells which rotary positions its model has"),
    ("vit_pe_core_tiny_patch16_384", "nothing tells which rotary positions its model has"),
    ("samvit_base_patch16", "nothing tells which windows of attention its model has"),
    ("mixer_s32_224", "is a part that neither"),
  ],
)
def test_what_we_do_not_have_is_named(peer, tmp_path, model, message):
  if isinstance(model, str):
    theirs = peer.timm.create_model(model, **(dict(depth=1) if "patch" in model else {}))
  else:
    theirs = peer.timm.models.VisionTransformer(num_classes=5, **(SMALL | model))
  with pytest.raises(ValueError, match=rf"w\.safetensors .*{message}"):
    weights.read(stored(theirs, tmp_path))


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    (dict(global_pool="map"), "pools by 'map' .*, and models here with such parameters by 'token'"),
    (dict(model_args=dict(global_pool="")), "pools by ''"),
    (dict(pretrained_cfg=dict(global_pool="max")), "pools by 'max'"),
    (dict(model_args=dict(in_chans=1)), "model of channels 1, and its arrays .* channels 3"),
    (dict(model_args=dict(img_size=[32])), r"img_size is \[32\] and must be a number from 1"),
    (dict(architecture="vit_base_patch16_224"), "model of width 768, and its arrays .* width 192"),
    (dict(architecture="vit_base_mci_224"), "with another stem of convolutions, which no model"),
    (dict(model_args=dict(gated_attn=True)), "made with gated_attn"),
    (dict(model_args=dict(act_layer="relu")), "act_layer is 'relu'"),
    (dict(model_args=dict(num_heads=True)), "num_heads is True and must be a number from 1"),
    (dict(pretrained_cfg=dict(crop_mode="border")), "crop_mode is 'border'"),
    (dict(pretrained_cfg=dict(interpolation="random")), "interpolation is 'random'"),
    (
      dict(pretrained_cfg=dict(std=[0, 1, 1])),
      r"std is \[0, 1, 1\] and must be a number for each channel",
    ),
    (dict(pretrained_cfg=dict(mean=[float("nan")] * 3)), r"mean is \[nan, nan, nan\]"),
    (dict(pretrained_cfg=7), "does not describe a model of timm"),
  ],
)
def test_other_functions_are_refused(peer, tmp_path, changes, message):
  model, _ = made(peer, "tiny")
  peer.timm.models.save_for_hf(model, tmp_path, safe_serialization=True)
  config = tmp_path / "config.json"
  config.write_text(json.dumps(json.loads(config.read_text()) | changes))
  with pytest.raises(ValueError, match=message):
    weights.read(tmp_path)


@pytest.mark.parametrize(
  ("images", "expected"),
  [
    (dict(), (35, False, "torchvision_bicubic")),  # 32 / 0.9
    (dict(crop_pct=1.0, interpolation="bilinear"), (32, False, "torchvision_bilinear")),
    (dict(crop_pct=None, interpolation="lanczos"), (36, False, "torchvision_lanczos")),  # 0.875
    (dict(crop_mode="squash", crop_pct=0.9), (35, True, "torchvision_bicubic")),
    (dict(crop_mode="squash", crop_pct=1.0), (0, False, "torchvision_bicubic")),
  ],
)
def test_how_images_and_positions_are_resized(peer, tmp_path, images, expected):
  """Positions at another size are those that timm makes of its own model."""
  model, side = made(peer, "tiny")
  model.pretrained_cfg = model.pretrained_cfg | dict(input_size=(3, side, side))
  peer.timm.models.save_for_hf(model, tmp_path, safe_serialization=True)
  config = tmp_path / "config.json"
  settings = json.loads(config.read_text())
  settings["pretrained_cfg"] |= images
  config.write_text(json.dumps(settings))
  loaded = read_model(tmp_path)
  card = loaded.card
  assert (card.resize, card.squeeze, card.resampling) == expected
  for other in (48, 16):
    ours = loaded.at_size(other).params["Transformer"]["posembed_input"]["pos_embedding"]
    theirs = copy.deepcopy(model)
    theirs.set_input_size(img_size=other)
    np.testing.assert_allclose(ours, theirs.pos_embed.detach().numpy(), atol=1e-6, rtol=0)


@pytest.mark.filterwarnings("ignore")  # torch's, about timm's code
@pytest.mark.parametrize(("old", "new"), [(14, 24), (14, 7), (3, 5), (2, 60), (1, 3), (4, 1)])
def test_biases_of_offsets_are_resized_as_timm_does(peer, old, new):
  rng = np.random.default_rng(0)
  table = rng.standard_normal(((2 * old - 1) ** 2 + 3, 4)).astype(np.float32)
  theirs = peer.timm.layers.resize_rel_pos_bias_table(
    peer.torch.from_numpy(table), (new, new), ((2 * new - 1) ** 2 + 3, 4)
  )
  ours = resize_biases(table, (old, old), (new, new), timm.POSITION_RESIZING)
  np.testing.assert_allclose(ours, theirs, atol=2e-5, rtol=0)


@pytest.mark.parametrize(
  "name",
  ["vit_small_r26_s32_224", "vit_base_r50_s16_224", "vit_tiny_r_s16_p8_224", "resnetv2_50x1_bit"],
)
def test_resnets(peer, tmp_path, name):
  """In both directions, in float64; timm's hybrids have other epsilons than the published ones."""
  options = {} if "bit" in name else dict(img_size=64, depth=2)
  model = randomly(peer, peer.timm.create_model(name, num_classes=5, **options))
  path = stored(model, tmp_path)
  loaded, images = weights.read(path), families.images(64).astype(np.float64)
  params = loaded.params
  with jax.enable_x64(True):
    module = of_weights(loaded).module
    assert not differences(models.create(name, **({} if "bit" in name else dict(depth=2))), module)
    module = module.clone(dtype=jnp.float64)
    ours, _ = jax.jit(module.apply, static_argnames="train")(
      {"params": jax.tree.map(np.float64, params)}, images, train=False
    )
  expected = logits(peer, model.double(), images)
  assert np.std(expected) > 0.1
  np.testing.assert_allclose(ours, expected, atol=BOUND, rtol=0)
  weights.save(tmp_path / "ours.safetensors", params)
  again = peer.timm.create_model(
    name, num_classes=5, checkpoint_path=str(tmp_path / "ours.safetensors"), **options
  )
  np.testing.assert_array_equal(logits(peer, again.double(), images), expected)


def test_positions_of_the_class_token_beside_registers(peer, tmp_path):
  """As Transformers' DINOv2 has them; exported with the notes' words for timm's model."""
  name, words = "vit_small_patch14_reg4_dinov2", dict(img_size=56, depth=2, num_classes=5)
  module = models.create(name, depth=2, num_classes=5, activation="quick_gelu")
  params = modules.parameters(module, families.images(56), train=False)
  params["Transformer"]["posembed_input"]["pos_embedding"][:, 1:5] = 0
  source, output = tmp_path / "source.npz", tmp_path / "w.safetensors"
  weights.save(source, params, module)
  said = " ".join(export.write(read_model(source), "source", output))
  assert "give timm no_embed_class=False" in said
  assert "give timm act_layer=quick_gelu" in said
  words |= dict(no_embed_class=False, act_layer="quick_gelu", checkpoint_path=str(output))
  expected, _ = modules.run(module, params, families.images(56))
  found = logits(peer, peer.timm.create_model(name, **words), families.images(56))
  assert np.std(expected) > 0.1
  np.testing.assert_allclose(found, expected, atol=BOUND, rtol=0)


def test_layer_scale_stays_a_parameter(peer, tmp_path):
  """Under the name of DeiT III's own files too."""
  model, _ = made(peer, "deit3")
  path = stored(model, tmp_path)
  params = weights.load(path)
  block = params["Transformer"]["encoderblock_1"]
  assert of_weights(Weights(params, None)).module.layer_scale
  np.testing.assert_array_equal(block["LayerScale_3"]["scale"], model.blocks[1].ls2.gamma.detach())
  state = {name.replace(".ls1.gamma", ".gamma_1"): x for name, x in model.state_dict().items()}
  importlib.import_module("safetensors.torch").save_file(state, path)
  families.assert_same_bits(weights.load(path), params)


def test_an_mlp_that_authors_pass_in_code(peer, tmp_path):
  """As Virchow's on the Hub, whose config.json has the name of a model with plain MLPs."""
  name = "vit_huge_patch14_224"
  arguments = dict(SMALL, img_size=28, patch_size=14, num_classes=0, global_pool="", reg_tokens=4)
  gated = dict(mlp_layer=peer.timm.layers.SwiGLUPacked, act_layer=peer.torch.nn.SiLU)
  model = randomly(peer, peer.timm.create_model(name, **arguments, **gated))
  stored(model, tmp_path)
  config = dict(architecture=name, model_args=arguments, mean=[0.5] * 3, std=[0.5] * 3)
  (tmp_path / "config.json").write_text(json.dumps(config))
  loaded = read_model(tmp_path / "w.safetensors").at_size(28)
  images = families.images(28)
  theirs = logits(peer, model, images)  # of all tokens
  _, features = modules.run(loaded.module, loaded.params, images)
  np.testing.assert_allclose(features["pre_logits"], theirs[:, 0], atol=BOUND, rtol=0)
  np.testing.assert_allclose(features["patches"], theirs[:, 5:], atol=BOUND, rtol=0)


def test_several_labels_in_the_wrapper_of_transformers(peer, tmp_path):
  """The wrapper itself is there only beside torchvision; these are the files that it writes."""
  transformers = pytest.importorskip("transformers", reason="transformers is not installed")
  config = transformers.TimmWrapperConfig(
    architecture="vit_tiny_patch16_224",
    model_args=SMALL,
    num_labels=3,
    problem_type="multi_label_classification",
  )
  config.pretrained_cfg = dict(input_size=[3, 16, 16], mean=[0.5] * 3, std=[0.5] * 3)
  model = randomly(peer, peer.timm.create_model(config.architecture, num_classes=3, **SMALL))
  config.save_pretrained(tmp_path)
  arrays = {f"timm_model.{name}": array.numpy() for name, array in model.state_dict().items()}
  safetensors.numpy.save_file(arrays, tmp_path / "model.safetensors")
  loaded = read_model(tmp_path).at_size()
  images = families.images(16)
  found, _ = modules.run(loaded.module, loaded.params, images)
  expected = 1 / (1 + np.exp(-logits(peer, model, images)))
  np.testing.assert_allclose(loaded.probabilities(found), expected, atol=BOUND, rtol=0)


@pytest.mark.parametrize("pool", ["gap", "class_token"])
@pytest.mark.parametrize("positions", ["sincos2d", "sincos2d_mae"])
def test_fixed_positions_are_a_table_for_timm_and_fixed_again_for_us(
  peer, tmp_path, positions, pool
):
  module = models.create("ViT-B/4", **families.VIT, positions=positions, pool=pool)
  params = modules.parameters(module, families.images(), train=False)
  card = Card(image_size=16, model=Model(positions=positions))
  weights.write(tmp_path / "w.safetensors", Weights(params, card))
  options = OURS["vit"] if pool == "class_token" else OURS["gap"]
  model = peer.timm.models.VisionTransformer(num_classes=5, act_layer="gelu_tanh", **options)
  peer.timm.models.load_checkpoint(model, str(tmp_path / "w.safetensors"), strict=True)
  expected, _ = modules.run(module, params, families.images())
  found = logits(peer, model, families.images())
  np.testing.assert_allclose(found, expected, atol=BOUND, rtol=0)
  loaded = read_model(tmp_path / "w.safetensors")
  assert loaded.module == module
  families.assert_same_bits(loaded.params, params)
  assert loaded.at_size(24).module == module


@pytest.mark.parametrize("channels", [1, 4, 13])
def test_other_channels(peer, tmp_path, channels):
  """A folder with a mean for each channel; and weights for RGB, changed as timm changes them."""
  model = peer.timm.models.VisionTransformer(num_classes=5, in_chans=channels, **SMALL)
  model = randomly(peer, model)
  rng = np.random.default_rng(0)
  mean, deviation = (rng.uniform(0.2, 0.6, channels).astype(np.float32) for _ in range(2))
  theirs = dict(mean=mean.tolist(), std=deviation.tolist(), input_size=[channels, 16, 16])
  config = dict(
    architecture="vit_tiny_patch16_224",
    model_args=dict(num_heads=2, embed_dim=32, in_chans=channels),
    pretrained_cfg=theirs,
  )
  stored(model, tmp_path).rename(tmp_path / "model.safetensors")
  (tmp_path / "config.json").write_text(json.dumps(config))
  loaded = read_model(tmp_path).at_size()
  assert (loaded.module.channels, loaded.card.channels) == (channels, channels)
  images = rng.uniform(-1, 1, (2, 16, 16, channels)).astype(np.float32)
  ours, _ = modules.run(loaded.module, loaded.params, images)
  expected = logits(peer, model, ((images + 1) / 2 - mean) / deviation)
  np.testing.assert_allclose(ours, expected, atol=BOUND, rtol=0)
  written = timm.to_timm(loaded.params)["patch_embed.proj.weight"]
  assert written.shape == tuple(model.patch_embed.proj.weight.shape)

  kernel = rng.normal(size=(4, 4, 3, 32)).astype(np.float32)
  as_theirs = peer.torch.from_numpy(kernel.transpose(3, 2, 0, 1).copy())
  changed = peer.timm.models.adapt_input_conv(channels, as_theirs).numpy()
  np.testing.assert_allclose(
    for_channels(kernel, channels).transpose(3, 2, 0, 1), changed, atol=1e-6
  )


def test_a_mean_of_other_channels_is_refused(peer, tmp_path):
  model = peer.timm.models.VisionTransformer(num_classes=5, in_chans=1, **SMALL)
  stored(model, tmp_path)
  config = dict(architecture="vit_tiny_patch16_224", model_args=dict(num_heads=2, embed_dim=32))
  (tmp_path / "config.json").write_text(json.dumps(config))
  with pytest.raises(ValueError, match=r"its images have 1 channels, and its mean .* of others"):
    weights.read(tmp_path)
