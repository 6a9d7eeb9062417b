"""Images prepared as Transformers' processors do, pixel for pixel, or refused.

Needs transformers (the extra `agreement`); skipped, with this reason, without it.
"""

import importlib.util
import json

import numpy as np
import pytest
from PIL import Image

from tests.data.test_resampling import photo
from vit_jax.data.images import evaluate_image
from vit_jax.extras.formats import huggingface_images

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
IMAGENET = dict(image_mean=[0.485, 0.456, 0.406], image_std=[0.229, 0.224, 0.225])
SIZES = [(50, 37), (37, 50), (301, 200), (24, 24), (19, 33)]


def processor_of(kind, **settings):
  """Pillow's; of a kind without one, torchvision's."""
  name = f"{kind}ImageProcessor"
  return (getattr(transformers, f"{name}Pil", None) or getattr(transformers, name))(**settings)


def written(folder, kind, settings):
  values = dict(image_processor_type=f"{kind}ImageProcessor") | settings
  (folder / huggingface_images.FILE).write_text(json.dumps(values))


@pytest.mark.parametrize("resample", range(6))
@pytest.mark.parametrize(
  ("kind", "settings"),
  [
    ("ViT", dict(size=24)),
    ("ViT", dict(size=dict(height=24, width=24)) | IMAGENET),
    ("ViT", dict(size=24, do_normalize=False)),
    ("ViT", dict(size=24, do_rescale=False, image_mean=[127.5] * 3, image_std=[127.5] * 3)),
    ("ViT", dict(size=24, rescale_factor=1 / 127.5, image_mean=1.0, image_std=1.0)),
    ("Bit", dict(size=27, crop_size=24)),
    ("Bit", dict(size=dict(shortest_edge=28), crop_size=dict(height=24, width=24)) | IMAGENET),
    ("Bit", dict(size=dict(height=24, width=24), do_center_crop=False)),
    ("CLIP", dict(size=24, crop_size=24, rescale_factor=0.003921569)),
    ("DeiT", dict(size=27, crop_size=24)),
    ("DeiT", dict(size=dict(shortest_edge=27), crop_size=24, do_convert_rgb=None)),
  ],
)
def test_pixels(tmp_path, kind, settings, resample):
  settings = settings | dict(resample=resample)
  written(tmp_path, kind, settings)
  prepared, processor = (
    huggingface_images.read_processor(tmp_path, "ViT"),
    processor_of(kind, **settings),
  )
  mean, deviation, *values = prepared
  how = dict(zip(("size", "resize", "squeeze", "resampling"), values, strict=True))
  for sides in SIZES:
    pixels = photo(*sides)
    theirs = processor(Image.fromarray(pixels), return_tensors="np")["pixel_values"][0]
    ours = evaluate_image(pixels, max_pixels=2**20, **how)
    ours = (ours / 255 - mean) / deviation
    np.testing.assert_allclose(ours, theirs.transpose(1, 2, 0), rtol=1e-5, atol=1e-5)


PILLOWS = ("ViT", "Bit", "CLIP", "DeiT", "Siglip", "Beit")
# It does not round pixels to grey levels, and has this mean and deviation.
OF_TORCHVISION = pytest.param(
  "DINOv3ViT",
  1 / 255 / min(IMAGENET["image_std"]),
  marks=pytest.mark.skipif(
    importlib.util.find_spec("torchvision") is None, reason="torchvision is not installed"
  ),
)


@pytest.mark.parametrize(
  ("kind", "tolerance"), [*((kind, 1e-5) for kind in PILLOWS), OF_TORCHVISION]
)
def test_what_a_file_does_not_say_is_the_processors_own(tmp_path, kind, tolerance):
  """Also, no processor has a key that is not known here, and what it saves is read."""
  written(tmp_path, kind, {})
  read, processor = huggingface_images.read_processor(tmp_path, "ViT"), processor_of(kind)
  processor.save_pretrained(tmp_path)
  assert huggingface_images.read_processor(tmp_path, "ViT") == read
  pixels = photo(301, 333)
  theirs = processor(Image.fromarray(pixels), return_tensors="np")["pixel_values"][0]
  how = dict(size=read.size, resize=read.resize, squeeze=read.squeeze, resampling=read.resampling)
  ours = (evaluate_image(pixels, max_pixels=2**20, **how) / 255 - read.mean) / read.deviation
  np.testing.assert_allclose(ours, theirs.transpose(1, 2, 0), rtol=1e-5, atol=tolerance)
