"""DINOv2 of Hugging Face, with and without registers: the same outputs, on random weights.

Needs torch and transformers (the extra `agreement`); skipped, with this reason, without them.
"""

import json

import numpy as np
import pytest

from tests import modules
from tests.weights import families
from vit_jax import weights
from vit_jax.inference.model import read_model

torch = pytest.importorskip("torch", reason="torch is not installed (extra `agreement`)")
SMALL = dict(
  hidden_size=32, num_hidden_layers=2, num_attention_heads=2, image_size=56, patch_size=14
)
MEAN, DEVIATION = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def saved(folder, *, registers=0, **options):
  """A model with random weights, and its folder as published ones are."""
  transformers = pytest.importorskip("transformers", reason="transformers is not installed")
  kind = "Dinov2WithRegisters" if registers else "Dinov2"
  options |= dict(num_register_tokens=registers) if registers else {}
  config = getattr(transformers, f"{kind}Config")(**SMALL | options)
  model = getattr(transformers, f"{kind}Model")(config).eval()
  generator = torch.Generator().manual_seed(0)
  with torch.no_grad():
    for x in model.parameters():
      x.copy_(torch.randn(x.shape, generator=generator) * (0.3 if x.ndim < 4 else 0.05))
  model.save_pretrained(folder)
  prepared = dict(image_mean=MEAN, image_std=DEVIATION, size=64, crop_size=56)
  (folder / "preprocessor_config.json").write_text(json.dumps(prepared))
  return model


def test_outputs_for_pixels_of_another_mean(tmp_path, caplog):
  registers = 4
  model = saved(tmp_path, registers=registers)
  loaded = read_model(tmp_path).at_size()
  assert loaded.module.registers == registers
  assert loaded.module.layer_scale
  assert (loaded.card.image_size, loaded.card.resize) == (56, 64)
  assert "embeddings.mask_token" in caplog.text
  images = families.images(56)
  theirs = ((images + 1) / 2 - np.float32(MEAN)) / np.float32(DEVIATION)
  with torch.no_grad():
    found = model(torch.from_numpy(theirs.transpose(0, 3, 1, 2).copy()))
  _, features = modules.run(loaded.module, loaded.params, images)
  assert features["pre_logits"].std() > 0.1
  np.testing.assert_allclose(features["pre_logits"], found.pooler_output, atol=1e-5, rtol=0)
  patches = found.last_hidden_state[:, 1 + registers :]
  np.testing.assert_allclose(features["patches"], patches, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    (
      dict(use_swiglu_ffn=True),
      "use_swiglu_ffn is True in config.json, and False by the arrays",
    ),
    (dict(architectures=["Dinov2ForImageClassification"]), "architectures is .*, and .*2Model'"),
    (dict(architectures=["Dinov2Backbone"]), r"architectures is \['Dinov2Backbone'\] and must be"),
    (dict(apply_layernorm=False), "apply_layernorm is False"),
    (dict(image_size=84), "image_size is 84 in config.json, and 56 by the arrays"),
    (dict(image_size=[28, 112]), r"image_size is \[28, 112\] and must be a number"),
  ],
)
def test_what_we_do_not_have_is_named(tmp_path, changes, message):
  saved(tmp_path)
  config = tmp_path / "config.json"
  config.write_text(json.dumps(json.loads(config.read_text()) | changes))
  with pytest.raises(ValueError, match=message):
    weights.read(tmp_path)
