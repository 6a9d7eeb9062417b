"""The paper's baseline, "ResNet (BiT)" (Section 4.1), and the axial ResNet (Appendix D.6).

Its layers are in vit_jax/models/backbone.py.
"""

import re

import flax.linen as nn
import jax
import jax.numpy as jnp

from vit_jax import config
from vit_jax.models import vit_costs
from vit_jax.models.backbone import Backbone
from vit_jax.models.convolution import STAGES, check_root, check_stages, map_size, stride_of
from vit_jax.models.family import Family, Network, check_heads, check_sizes
from vit_jax.models.layers import Head, as_input
from vit_jax.models.recognition import child_count, outputs

MODEL = config.Model()  # default settings


class ResNet(Network, nn.Module):
  """ResNet with GroupNorm and standardised weights, pre-activation (BiT).

  Attributes:
    stages: residual units in each stage.
    width: channels of the root: 64 times the width factor of the name.
    heads: 0, or the heads of the axial attention that replaces each 3 x 3 convolution.
    unit_kind: "bit", or "d": a root of three convolutions, means before the projections of
      shortcuts, and kernels that are not standardised (ResNet-D, with GroupNorm).
    channels: of the images.
    num_classes: outputs of the head.
    head_bias, head_std: initial value of the head's bias; standard deviation of its kernel.
    dtype: type of the computation; parameters are float32.
    attention: "cudnn", on GPUs, "heads_first", for CPUs, or "xla"; "auto" computes like "xla".
    remat: what the backward pass recomputes in each unit: "none", "dots" or "everything".
  """

  stages: tuple[int, ...]
  width: int
  heads: int = 0
  unit_kind: str = "bit"
  channels: int = 3
  num_classes: int = 1000
  head_bias: float = MODEL.head_bias
  head_std: float = MODEL.head_std
  dtype: jnp.dtype = jnp.float32
  attention: str = MODEL.attention
  remat: str = MODEL.remat

  @nn.compact
  def __call__(self, images: jax.Array, *, train: bool) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Classifies images.

    Args:
      images: (B, H, W, channels) in [-1, 1], of any size; with axial attention always of the same
        size, as the relative embeddings are for that size.
      train: changes nothing: there is no dropout.

    Returns:
      logits (B, num_classes) float32, and the result of `features`.

    Raises:
      ValueError: the images are integers, or have another number of channels.
    """
    features = self.features(images, train=train)
    head = Head(self.num_classes, self.head_bias, self.dtype, self.head_std, name="head")
    return head(features["pre_logits"]), features

  @nn.compact
  def features(self, images: jax.Array, *, train: bool) -> dict[str, jax.Array]:
    """All but the head; arguments as in the call.

    Returns:
      "patches" (B, N, D), the last map in raster order, and "pre_logits" (B, D), its mean.
    """
    del train
    x = Backbone(
      stages=self.stages,
      width=self.width,
      heads=self.heads,
      dtype=self.dtype,
      attention=self.attention,
      remat=self.remat,
      kind=self.unit_kind,
      name="resnet",
    )(as_input(images, self.channels, self.dtype))
    patches = x.reshape(x.shape[0], -1, x.shape[-1])
    return {"patches": patches, "pre_logits": patches.mean(axis=1)}

  def check(self, name: str):
    """As `Network.check`."""
    check_sizes(self, name, "width")
    check_heads(self, name)
    check_stages(self.stages)
    check_root(self.width, "width", name)

  def grid(self, height: int, width: int) -> tuple[int, int]:
    """Rows and columns of the last map; convolutions take images of any size."""
    return map_size(height, self.stages), map_size(width, self.stages)

  def stride(self) -> int:
    """Pixels from one position of the last map to the next."""
    return stride_of(self.stages)

  def usual_side(self) -> int:
    """Convolutions take any size; relative position embeddings are for one size."""
    return 0 if self.heads else 224

  def feature_width(self) -> int:
    """The channels of the last map."""
    return vit_costs.resnet_macs(self.stages, self.width, 0, 1, 1)[1]

  def macs(self, height: int, width: int) -> int:
    """As `Network.macs`."""
    macs, channels = vit_costs.resnet_macs(
      self.stages,
      self.width,
      self.heads,
      height,
      width,
      deep=self.unit_kind == "d",
      channels=self.channels,
    )
    return macs + channels * self.num_classes

  def why_opaque(self) -> str:
    """As `Network.why_opaque`."""
    return (
      "these weights are of a ResNet, which has no patches and no blocks to look into; give "
      "weights of a ViT or a hybrid."
    )


_NAME = re.compile(r"R(?P<depth>\d+)x(?P<factor>[1-9]\d?)|Axial-R(?P<axial>\d+)", re.ASCII)
AXIAL_HEADS = 8  # of the axial attention; the paper does not state the number


def fields_of_name(name: str) -> dict | None:
  """As `Family.fields`."""
  match = _NAME.fullmatch(name)
  if not match:
    return None
  depth = match["depth"] or match["axial"]
  if depth not in STAGES:
    return None
  fields = dict(stages=STAGES[depth], width=64 * int(match["factor"] or 1))
  if match["axial"]:
    fields["heads"] = AXIAL_HEADS
  return fields


def recognise(params: dict) -> dict | None:
  """As `Family.recognise`."""
  if "resnet" not in params:
    return None
  backbone = params["resnet"]
  blocks = range(1, child_count(backbone, "block", first=1) + 1)
  root = backbone["root_block"]
  middle = backbone["block1"]["unit01"]["b"]
  fields = dict(
    stages=tuple(child_count(backbone[f"block{i}"], "unit", first=1) for i in blocks),
    width=root.get("conv3", root)["standardized_conv2d"]["kernel"].shape[-1],
    unit_kind="d" if "conv3" in root else "bit",
    channels=root.get("conv1", root)["standardized_conv2d"]["kernel"].shape[2],
    num_classes=outputs(params),
  )
  if "row_attention" in middle:
    fields["heads"] = middle["row_attention"]["query"]["kernel"].shape[1]
  return fields


def alike(module: ResNet) -> list[str]:
  """As `Family.alike`."""
  if module.heads:
    return [f"Axial-R{depth}" for depth in STAGES]
  factor = max(module.width // 64, 1)
  return [f"R{depth}x{factor}" for depth in STAGES]


FAMILY = Family(
  module=ResNet,
  names=(
    *("R50x1", "R50x2", "R50x3", "R101x1", "R101x3", "R152x1", "R152x2", "R152x4", "R200x3"),
    "Axial-R50",
  ),
  fields=fields_of_name,
  recognise=recognise,
  alike=alike,
)
