"""What a user asks a probe for."""

import dataclasses
import pathlib

from vit_jax.config import Size

KINDS = ("knn", "logistic", "linear", "cross_attention", "attentive", "few_shot")
SEGMENTATION = "segmentation"  # of images with masks, which have no labels for the others
USUAL = ("knn", "logistic", "linear", "cross_attention", "few_shot")
STEPS = 12_500  # of the linear probe: 10 epochs of 1,250
SEGMENTATION_STEPS = 40_000
FOLDER = pathlib.Path("probes")
CACHE = FOLDER / "features"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
  """What a user asks for; see the flags of `vit-jax probe`.

  Attributes:
    weights: the weights, in any form that `vit_jax.load` takes.
    images: a source of labelled images.
    cache: the folder for features.
    probes: some of `KINDS`, or `SEGMENTATION` alone.
    seeds: number of seeds.
    steps: of the linear and the segmentation probe; 0: 12,500 and 40,000.
    corruptions: whether corrupted test images are scored too.
    allow_overlap: whether the weights may have been trained on test images.
    image_size: of the images, pixels; 0: the weights' own.
    batch_size: images at a time, at most.
    average: whether a moving average of the parameters is taken, if there is one.
  """

  weights: str
  images: str
  cache: pathlib.Path = CACHE
  probes: tuple[str, ...] = USUAL
  seeds: int = 3
  steps: int = 0
  corruptions: bool = False
  allow_overlap: bool = False
  image_size: Size = 0
  batch_size: int = 32
  average: bool = True
