"""What our exports are compared with: torch, timm, and two models that timm has no name for.

Whoever imports this pays the seconds that torch takes; the tests do it when the first of them runs.
"""

import functools
import importlib.util
import sys

import pytest

from vit_jax.extras.benchmarks.step import stand_in_for_torchvision

torch = pytest.importorskip("torch", reason="torch is not installed (extra `agreement`)")
if importlib.util.find_spec("torchvision") is None:
  stand_in_for_torchvision()
timm = pytest.importorskip("timm", reason="timm is not installed (extra `agreement`)")
for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
  if sys.modules[name].__spec__.loader is None:  # the stand-in, which others must not find
    del sys.modules[name]


def small_bit(num_classes):
  """timm's BiT with one unit a stage, whose names have no such model."""
  convolution = functools.partial(timm.layers.StdConv2d, eps=1e-8)
  return timm.models.resnetv2.ResNetV2(
    (1, 1, 1, 1), num_classes=num_classes, stem_type="fixed", conv_layer=convolution
  )


def small_resnet(num_classes, kind):
  """timm's BiT, or its ResNet-D with GroupNorm, with one unit a stage."""
  if kind == "bit":
    return small_bit(num_classes)
  return timm.models.resnetv2.ResNetV2(
    (1, 1, 1, 1),
    num_classes=num_classes,
    conv_layer=timm.layers.create_conv2d,
    norm_layer=timm.layers.GroupNormAct,
    stem_type="deep",
    avg_down=True,
  )


def small_hybrid(**options):
  """timm's hybrid with stage 4, whose ResNet standardises and normalises as the published code."""
  return PublishedStem(timm.create_model("vit_small_r26_s32_224", **options))


class PublishedStem(torch.nn.Module):
  """A hybrid of timm with the arithmetic of the published code in its ResNet.

  That code divides weights by their standard deviation plus 1e-5, and adds 1e-6 to the variance in
  GroupNorm; timm adds 1e-8 to the variance of weights, and 1e-5 in GroupNorm.
  """

  def __init__(self, model):
    super().__init__()
    self.model = model

  def load_pretrained(self, path):
    self.model.load_pretrained(path)
    for module in self.model.patch_embed.backbone.modules():
      if isinstance(module, timm.layers.StdConv2dSame):
        deviation, mean = torch.std_mean(
          module.weight.detach(), dim=(1, 2, 3), keepdim=True, correction=0
        )
        module.weight.data = (module.weight.detach() - mean) / (deviation + 1e-5)
        module.__class__ = timm.layers.Conv2dSame
      elif isinstance(module, torch.nn.GroupNorm):
        module.eps = 1e-6

  def forward(self, images):
    return self.model(images)
