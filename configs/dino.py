r"""Pre-training by self-distillation on ImageNet without labels (Caron et al., "Emerging properties
in self-supervised vision transformers", 2021, arXiv 2104.14294).

  python -m vit_jax.main --config=configs/dino.py:S --workdir=workdirs/dino

ViT-S/16 for 800 epochs; B gives ViT-B/16 for 400. Published accuracy of the 20 nearest neighbours:
74.5% and 76.1%. Cost by vit-jax cost: 127 and 243 exaFLOPs.
Settings are those that the authors publish with these weights: batch 1024, AdamW, learning rate
5e-4 (B: 7.5e-4) for 256 images, 10 epochs of warm-up, cosine to 1e-5 (B: 2e-6); weight decay from
0.04 to 0.4 and momentum of the teacher from 0.996 to 1 by a cosine; temperature of the student 0.1,
of the teacher from 0.04 to 0.07 in 30 epochs (B: 50); 65,536 prototypes, fixed in the first epoch
(B: 3); two crops of 224 pixels (25 to 100% of the area) and ten of 96 (5 to 25%); stochastic depth
0.1. Section 3.2 and the defaults of their code differ: eight crops of 5 to 40%, two of 40 to 100%.
Otherwise than there: for B, gradients are clipped to a norm of 3 all together, there each array's
to 0.3; the prototypes always have norm 1, which that code leaves out for ViT-S, and have gradients
and moments also while they are fixed; the teacher's temperature rises with each step, there with
each epoch; kernels begin as in this project's other models; class token and positions do not decay;
pixels are scaled to -1 to 1, not by ImageNet's mean and deviation of each channel.
Needs `vit-jax prepare build imagenet2012`. Give the length of a run on other images in epochs; in
steps it counts as many epochs as ImageNet would have. Prototypes are fixed for at most a fifth of
the run. Not run here: it needs accelerators.
"""

import dataclasses
from typing import NamedTuple

from vit_jax.config import Checkpoint, Config, Data, Duration, Model, Schedule, to_config_dict
from vit_jax.evaluation.nearest_neighbours import Nearest
from vit_jax.extras.dino.objective import Settings
from vit_jax.learning.optimizers.adam import Adam
from vit_jax.recipes import choice, examples_of
from vit_jax.recipes.following import given, unchanged, with_rate_of_batch
from vit_jax.recipes.pretraining import DATASETS


class Size(NamedTuple):
  """What differs between the sizes.

  Attributes:
    model: its name.
    epochs: of the whole run.
    warmup: epochs in which the teacher's temperature rises.
    frozen: epochs without training of the prototypes.
    rate: learning rate for 256 images.
    end: learning rate at the end.
    clip_norm: most global norm of the gradients; 0: any.
  """

  model: str
  epochs: int
  warmup: int
  frozen: int
  rate: float
  end: float
  clip_norm: float


SIZES = {
  "S": Size("ViT-S/16", 800, warmup=30, frozen=1, rate=5e-4, end=1e-5, clip_norm=0.0),
  "B": Size("ViT-B/16", 400, warmup=50, frozen=3, rate=7.5e-4, end=2e-6, clip_norm=3.0),
}

FROZEN = 0.2  # most of a short run: prototypes that were never trained would stay random


def get_config(size="S", replace=unchanged):
  """One size; the learning rate grows with the batch, and lengths in epochs stay."""
  images = DATASETS["imagenet"]
  chosen = SIZES[choice(size, *SIZES)]
  recipe = Config(
    batch_size=1024,
    duration=Duration(epochs=chosen.epochs),
    log_every=Duration(steps=50),
    evaluate_every=Duration(epochs=50),
    objective=Settings(),
    model=Model(
      name=chosen.model,
      num_classes=images.num_classes,
      activation="gelu",
      stochastic_depth=0.1,
      compute_dtype="bfloat16",
    ),
    optimizer=Adam(
      weight_decay=0.04,
      end_weight_decay=0.4,
      clip_norm=chosen.clip_norm,
      ema=0.996,
      end_ema=1.0,
      ema_corrected=False,
    ),
    schedule=Schedule(
      warmup=Duration(epochs=10),
      decay="cosine",
      end_learning_rate=chosen.end,
    ),
    data=Data(
      dataset="imagenet",
      train=images.train,
      image_size=224,
      crop_area=(0.25, 1.0),
      crop_rule="random_resized",
      resampling="torchvision_bicubic",
      flip=True,
      evaluate_resize=256,
    ),
    evaluate={"neighbours": Nearest(train=images.train, test=images.validation)},
    checkpoint=Checkpoint(every=Duration(epochs=1), keep_every=Duration(epochs=100)),
  )
  whole = epochs_of(replace(recipe)) or chosen.epochs
  objective = Settings(
    local_crops=10,
    local_area=(0.05, 0.25),
    temperature_warmup=min(chosen.warmup / whole, 1.0),
    frozen_prototypes=min(chosen.frozen / whole, FROZEN),
  )
  recipe = dataclasses.replace(recipe, objective=objective)
  return to_config_dict(with_rate_of_batch(recipe, chosen.rate, replace))


def epochs_of(config: Config) -> float:
  """The length of a run in epochs; steps and images are converted by ImageNet, or its subset."""
  length = given(config, "duration")
  steps_and_images = length.steps * given(config, "batch_size") + length.examples
  images = examples_of(config) or DATASETS["imagenet"].examples
  return length.epochs + steps_and_images / images
