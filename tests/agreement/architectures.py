"""timm's architectures beside ours: parameters by name, and outputs from the same random weights.

`python -m tests.agreement.architectures` compares the outputs of all names, made small, at three
sizes, in float32 and float64, and prints those that differ in float32, where rounding decides about
deep sums, with the difference of each library's float32 from timm's float64. It takes minutes.
Names that are then the same model are compared once.
"""

import copy
import importlib
import json
import pathlib
import sys
import tempfile
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import safetensors.torch

from tests.agreement import timm_models as peer
from vit_jax import models
from vit_jax.config.model import translated
from vit_jax.extras.formats import timm
from vit_jax.inference.model import read_model
from vit_jax.weights.format import Heads

torch = peer.torch
FILES = ("vision_transformer", "vision_transformer_hybrid", "vision_transformer_relpos")
FILES += ("vision_transformer_sam", "deit", "eva", "beit", "resnetv2")
SIDE = 3  # rows of patches
OTHERS = (2, 5)  # of other images
BOUND = 1e-5  # of the largest output


def names() -> list[str]:
  """All names that timm gives to ViTs, hybrids, DeiTs, EVAs, BEiTs and ResNetV2s."""
  return [name for file in FILES for name in peer.timm.models.list_models(module=file)]


def lacking(name: str) -> str:
  """What ours lack of an architecture; "" if it is made."""
  meaning = translated(name)
  if meaning is None or not meaning.sure:
    return "the name"
  return meaning.lacking


def theirs_of(name: str, monkeypatch, made: dict) -> tuple[torch.nn.Module, dict]:
  """timm's model on no device with one block, and the arguments of the whole model.

  `made` keeps models, because many names differ in the size of their images alone.
  """
  arguments = {}

  def with_one_block(kind, variant, pretrained, **options):
    arguments.update(options)
    of_loading = ("pretrained_", "feature_", "cache_dir")
    own = {key: x for key, x in options.items() if not key.startswith(of_loading)}
    own.pop("img_size", None)
    if "num_kv_heads" in own:  # as in the blocks in the middle
      own["num_kv_heads"] = own["num_kv_heads"][own["depth"] // 2]
    if "depth" in own:
      own["depth"] = 1
    key = (kind, repr(sorted(own.items())))
    if key not in made:
      made[key] = kind(**own)
    return made[key]

  for file in FILES:
    module = importlib.import_module(f"timm.models.{file}")
    monkeypatch.setattr(module, "build_model_with_cfg", with_one_block)
  with torch.device("meta"):
    return peer.timm.create_model(name), arguments


def in_our_tree(state: dict, module) -> dict:
  """Their arrays in our tree, without memory for them."""
  flat = {key: np.broadcast_to(np.ones((), np.int8), x.shape) for key, x in state.items()}
  heads = Heads(getattr(module, "heads", 0), getattr(module, "pool_heads", 0))
  return timm.from_timm(flat, heads, 224 if "pos_embed" in flat else 0, ours=True)


def made_small(name: str):
  """timm's model with two or three narrow blocks and random parameters, none of them 0."""
  full = models.create(name)
  if not hasattr(full, "depth"):
    return randomly(peer.small_resnet(5, full.unit_kind))
  heads = 2
  options = dict(num_classes=5, img_size=SIDE * full.stride(), depth=2)
  options |= dict(embed_dim=64, num_heads=heads, mlp_ratio=2)
  if full.layer_scale_place == "attention":
    fewer = 1 if full.kv_heads else heads
    options |= dict(depth=3, num_kv_heads=(heads, fewer, heads))
  if full.window:
    options["depth"] = 3  # the third is the first without windows
  return randomly(peer.timm.create_model(name, **options))


def randomly(model):
  """The model with other parameters, as large as those of trained models."""
  generator = torch.Generator().manual_seed(0)
  with torch.no_grad():
    for name, x in model.named_parameters():
      noise = torch.randn(x.shape, generator=generator)
      small = x.ndim < 2 or "embed" in name or "token" in name or "table" in name
      scale = 0.2 if small else x[0].numel() ** -0.5
      x.copy_(noise * scale + (1 if "norm" in name and name.endswith("weight") else 0))
  return model.eval()


def folder_of(model, name: str, folder: pathlib.Path) -> pathlib.Path:
  """The model as timm publishes it."""
  safetensors.torch.save_file(model.state_dict(), folder / "model.safetensors")
  embedding = getattr(model, "patch_embed", None)
  side = SIDE * 32
  arguments = {}
  images = dict(mean=[0.4, 0.45, 0.5], std=[0.2, 0.25, 0.3])
  if embedding is not None:
    side = embedding.img_size[0]
    arguments = dict(embed_dim=64, num_heads=2, img_size=side)
  if embedding is None or hasattr(embedding, "backbone"):
    images |= dict(mean=[0.5] * 3, std=[0.5] * 3)
  images["input_size"] = [3, side, side]
  config = dict(architecture=name, model_args=arguments, pretrained_cfg=images)
  (folder / "config.json").write_text(json.dumps(config))
  return folder


def images_of(side: int) -> np.ndarray:
  """Two images, (2, side, side, 3), from -1 to 1."""
  return np.random.default_rng(side).uniform(-1, 1, (2, side, side, 3)).astype(np.float32)


def theirs_on(model, side: int, config: dict, kind: type = np.float32) -> np.ndarray:
  """Logits of timm's model for `images_of(side)`, in this type of floats."""
  mean, deviation = (np.float32(config[key]) for key in ("mean", "std"))
  prepared = ((images_of(side) + 1) / 2 - mean) / deviation
  pixels = torch.from_numpy(prepared.transpose(0, 3, 1, 2).astype(kind))
  model = copy.deepcopy(model).to(pixels.dtype)
  with torch.no_grad():
    logits = model(pixels).numpy()
  assert logits.std() > 0.05
  return logits


def ours_on(loaded, side: int, kind: type = np.float32) -> np.ndarray:
  """Logits of our model for the same images, in this type of floats."""
  with jax.enable_x64(kind is np.float64):
    module = loaded.module.clone(dtype=jnp.dtype(kind))
    params = jax.tree.map(kind, loaded.params)
    logits, _ = module.apply({"params": params}, kind(images_of(side)), train=False)
    return np.asarray(logits)


def error(found: np.ndarray, exact: np.ndarray) -> float:
  """The largest difference of logits, relative to the largest logit."""
  return float(np.abs(found - exact).max() / np.abs(exact).max())


def at_size(model, side: int):
  """A copy of timm's model for images of `side` pixels."""
  model = copy.deepcopy(model)
  for module in (model, getattr(model, "patch_embed", None)):
    if hasattr(module, "set_input_size"):  # SAM resizes its tables in each call
      with warnings.catch_warnings(action="ignore"):  # torch, about timm's interpolation
        module.set_input_size(img_size=side)
      break
  return model


def at_each_size(name: str, folder: pathlib.Path, sides: tuple[int, ...]):
  """timm's model and ours for images of so many rows of patches, their side, and timm's config.

  The arrays must come back.
  """
  model = made_small(name)
  read = read_model(folder_of(model, name, folder))
  config = json.loads((folder / "config.json").read_text())["pretrained_cfg"]
  back = timm.to_timm(read.params, read.card.model)
  assert {key: x.shape for key, x in back.items()} == {
    key: tuple(x.shape) for key, x in model.state_dict().items()
  }
  for rows in sides:
    side = rows * read.module.stride()
    yield at_size(model, side), read.at_size(side), side, config


def compare(
  name: str, folder: pathlib.Path, sides: tuple[int, ...] = (SIDE, *OTHERS)
) -> dict[str, float]:
  """The largest differences of ours and timm's outputs, in float32, in float64 and between them."""
  errors = []
  for model, loaded, side, config in at_each_size(name, folder, sides):
    ours = ours_on(loaded, side)
    theirs = theirs_on(model, side, config)
    exact = theirs_on(model, side, config, np.float64)
    errors.append(
      {
        "float32": error(ours, theirs),
        "float64": error(ours_on(loaded, side, np.float64), exact),
        "ours in float32 from float64": error(ours, exact),
        "timm's in float32 from float64": error(theirs, exact),
      }
    )
  return {what: max(each[what] for each in errors) for what in errors[0]}


def made_alike(name: str):
  """What `made_small` leaves of a name: names with equal values are compared once."""
  module = models.create(name)
  if not hasattr(module, "depth"):
    return module.unit_kind
  return module.clone(depth=1, width=64, heads=2, mlp_dim=1, kv_heads=min(module.kv_heads, 1))


def main():
  """Compares all names."""
  wanted = sys.argv[1:] or [name for name in names() if not lacking(name)]
  groups = {}
  for name in wanted:
    groups.setdefault(made_alike(name), []).append(name)
  equal = dict.fromkeys(("float32", "float64"), 0)
  for alike in groups.values():
    with tempfile.TemporaryDirectory() as folder:
      try:
        errors = compare(alike[0], pathlib.Path(folder))
      except Exception as failure:  # the others go on
        print(repr(failure)[:500], *alike, flush=True)
        continue
    for kind in equal:
      equal[kind] += len(alike) * (errors[kind] < BOUND)
    if errors["float32"] >= BOUND:
      print(*alike, *(f"{what}: {x:.2e};" for what, x in errors.items()), flush=True)
  print(f"of {len(wanted)} names, in {len(groups)} models, equal:", *equal.items())


if __name__ == "__main__":
  main()
