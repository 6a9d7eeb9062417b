"""Analytic cost of the models, and the peak speed of the chips that run them."""

from vit_jax.config import Config
from vit_jax.models.naming import Size, resolve

# Dense bfloat16 FLOP/s of one JAX device, by a prefix of its device_kind, from the makers' data
# sheets. A TPU v2 or v3 chip is two devices; from v4 on a chip is one.
PEAK_FLOPS = {
  "TPU v2": 22.5e12,
  "TPU v3": 61.5e12,
  "TPU v4": 275e12,
  "TPU v5 lite": 197e12,
  "TPU v5e": 197e12,
  "TPU v5p": 459e12,
  "TPU v5": 459e12,
  "TPU v6 lite": 918e12,
  "TPU v6e": 918e12,
  "NVIDIA A100": 312e12,
  "NVIDIA H100": 989e12,
  "NVIDIA H200": 989e12,
}


def peak_flops(device_kind: str) -> float | None:
  """FLOP/s of one device in bfloat16, or None where its kind is not known."""
  matches = [kind for kind in PEAK_FLOPS if device_kind.startswith(kind)]
  return PEAK_FLOPS[max(matches, key=len)] if matches else None


def vit_macs(
  size: Size,
  *,
  patch: int,
  height: int,
  width: int,
  num_classes: int,
  class_token: bool,
  representation_layer: bool,
) -> int:
  """Multiply-adds of one image's forward pass; only matrix products count.

  Patch embedding N P^2 3 D; per block the four projections 4 T D^2, the products q k^T and with v
  2 T^2 D, and the MLP 2 T D M; then representation layer and head. N patches, T tokens.
  """
  patches = (height // patch) * (width // patch)
  tokens = patches + class_token
  block = (
    4 * tokens * size.width**2 + 2 * tokens**2 * size.width + 2 * tokens * size.width * size.mlp_dim
  )
  head = size.width**2 * representation_layer + size.width * num_classes
  return patches * patch**2 * 3 * size.width + size.depth * block + head


def training_flops(macs: int) -> int:
  """FLOPs of one image's training step: two a multiply-add, the backward pass twice the forward."""
  return 6 * macs


def flops_per_image(config: Config) -> int:
  """FLOPs of one image's training step."""
  model, side = config.model, config.data.image_size
  size, patch = resolve(
    model.name, depth=model.depth, width=model.width, mlp_dim=model.mlp_dim, heads=model.heads
  )
  return training_flops(
    vit_macs(
      size,
      patch=patch,
      height=side,
      width=side,
      num_classes=model.num_classes,
      class_token=model.pool == "class_token",
      representation_layer=model.representation_layer,
    )
  )
