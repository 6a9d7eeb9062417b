"""timm's models for images of height x width pixels, and our files of them.

Needs torch and timm (the extra `agreement`); skipped, with this reason, where they are not there.
"""

import json

import numpy as np
import pytest

from tests import modules
from tests.agreement.test_timm_names import BOUND, logits, peer, randomly, stored
from vit_jax import weights
from vit_jax.extras.formats import timm
from vit_jax.inference.model import read_model
from vit_jax.weights import Weights

__all__ = ["peer"]
TINY = dict(embed_dim=32, num_heads=2, mlp_ratio=2, depth=1)
# A name, the size of the images, arguments, and another size; (): its positions are for one size.
MODELS = {
  "class token": ("vit_tiny_patch16_224", (32, 48), TINY, (48, 32)),
  "registers": ("vit_small_patch14_reg4_dinov2", (28, 42), TINY, (42, 70)),
  "rotary": ("eva02_tiny_patch14_224", (28, 42), TINY, (42, 28)),
  "sines for rows": ("vit_small_patch16_dinov3", (32, 48), TINY, (32, 80)),
  "patches too": ("vit_tiny_patch16_224", (24, 48), TINY | dict(patch_size=(8, 16)), (48, 32)),
  "biases of offsets": ("beit_base_patch16_224", (32, 48), TINY, ()),
}


def written(peer, folder, model, **config):
  """timm's own folder of a model, with more in its config.json."""
  peer.timm.models.save_for_hf(model, folder, safe_serialization=True)
  path = folder / "config.json"
  path.write_text(json.dumps(json.loads(path.read_text()) | config))
  return folder


def check_alike(peer, model, ours, size):
  assert ours.card.image_size == size
  images = np.random.default_rng(0).uniform(-1, 1, (2, *size, 3)).astype(np.float32)
  computed, _ = modules.run(ours.module, ours.params, images)
  expected = logits(peer, model, images)
  assert np.std(expected) > 0.05
  np.testing.assert_allclose(computed, expected, atol=BOUND, rtol=0)


@pytest.mark.parametrize("case", MODELS)
def test_they_compute_as_timm_at_both_sizes(peer, tmp_path, case):
  name, size, options, other = MODELS[case]
  model = peer.timm.create_model(name, num_classes=5, img_size=size, **options)
  model = randomly(peer, model)
  half = dict(mean=(0.5,) * 3, std=(0.5,) * 3, input_size=(3, *size), crop_pct=0.9)
  model.pretrained_cfg = model.pretrained_cfg | half
  heads = dict(model_args=dict(num_heads=2, embed_dim=32))
  loaded = read_model(written(peer, tmp_path / "hub", model, **heads)).at_size()
  assert loaded.card.resize == tuple(int(side / 0.9) for side in size)
  check_alike(peer, model, loaded, size)
  ours = tmp_path / "ours.safetensors"
  weights.write(ours, Weights(loaded.params, loaded.card))
  again = read_model(ours).at_size()
  assert (again.module, again.card) == (loaded.module, loaded.card)
  theirs = {key: x.shape for key, x in model.state_dict().items()}
  written_names = timm.to_timm(again.params, again.card.model)
  assert all(theirs[key] == x.shape for key, x in written_names.items())
  if other:
    model.set_input_size(img_size=other)
    check_alike(peer, model, again.at_size(other), other)


@pytest.mark.parametrize("images", [(64, 128), (128, 32), (64, 64)])
def test_positions_are_resized_from_their_own_size_to_that_of_the_images(peer, tmp_path, images):
  """The model was made for 32 x 128 pixels, as many patches as a square of 64 x 64 has."""
  name = "vit_tiny_patch16_224"
  model = peer.timm.create_model(name, num_classes=5, img_size=(32, 128), **TINY)
  model = randomly(peer, model)
  arguments = dict(num_heads=2, embed_dim=32, img_size=[32, 128], dynamic_img_size=True)
  config = dict(model_args=arguments, pretrained_cfg=dict(input_size=[3, *images]))
  loaded = read_model(written(peer, tmp_path, model, **config)).at_size()
  model.set_input_size(img_size=images)
  size = images if images[0] != images[1] else images[0]
  assert loaded.card.image_size == size
  table = loaded.params["Transformer"]["posembed_input"]["pos_embedding"]
  np.testing.assert_allclose(table, model.pos_embed.detach().numpy(), atol=1e-6, rtol=0)


def test_a_file_alone_does_not_tell_rectangles(peer, tmp_path):
  model = peer.timm.create_model("vit_tiny_patch16_224", num_classes=5, img_size=(64, 80), depth=1)
  with pytest.raises(ValueError, match=r"21 position embeddings are of no square.*\(img_size\)"):
    weights.read(stored(model, tmp_path))
