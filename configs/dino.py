r"""Pre-training by self-distillation on ImageNet without labels (Caron et al., "Emerging properties
in self-supervised vision transformers", 2021, arXiv 2104.14294).

  python -m vit_jax.main --config=configs/dino.py:S --workdir=workdirs/dino

ViT-S/16 for 800 epochs; B gives ViT-B/16 for 400. Published accuracy of the 20 nearest neighbours:
74.5% and 76.1%. Cost by vit-jax cost: 117 and 223 exaFLOPs.
Settings are those of Section 3.2 and of the defaults of the published code: batch 1024, AdamW,
learning rate 5e-4 for 256 images, 10 epochs of warm-up, cosine to 1e-6; weight decay from 0.04 to
0.4 and momentum of the teacher from 0.996 to 1 by a cosine; temperature of the student 0.1, of the
teacher from 0.04 to 0.07 in 30 epochs; 65,536 prototypes, fixed in the first epoch; two crops of
224 pixels (40 to 100% of the area) and eight of 96 (5 to 40%); stochastic depth 0.1.
Otherwise than there: gradients are clipped to a norm of 3 all together, there each array's alone;
the prototypes always have norm 1, which that code leaves out for ViT-S; the teacher's temperature
rises with each step, there with each epoch; kernels begin as in this project's other models; class
token and positions do not decay; pixels are scaled to -1 to 1, not by ImageNet's mean and deviation
of each channel.
Needs `vit-jax prepare build imagenet2012`. Not run here: it needs accelerators.
"""

import dataclasses

from vit_jax.config import Checkpoint, Config, Data, Duration, Model, Schedule, to_config_dict
from vit_jax.evaluation.nearest_neighbours import Nearest
from vit_jax.extras.dino.objective import Settings
from vit_jax.learning.optimizers.adam import Adam
from vit_jax.recipes import choice
from vit_jax.recipes.following import unchanged
from vit_jax.recipes.pretraining import DATASETS

BATCH = 1024
RATE = 5e-4  # for 256 images
SIZES = {"S": ("ViT-S/16", 800), "B": ("ViT-B/16", 400)}  # model and epochs
WARMUP, FROZEN = 30, 1  # epochs: of the teacher's temperature; without training of the prototypes


def get_config(size="S", replace=unchanged):
  """One size; the learning rate grows with the batch, and lengths in epochs stay."""
  images = DATASETS["imagenet"]
  name, epochs = SIZES[choice(size, *SIZES)]
  recipe = Config(
    batch_size=BATCH,
    duration=Duration(epochs=epochs),
    log_every=Duration(steps=50),
    evaluate_every=Duration(epochs=50),
    objective=Settings(),
    model=Model(
      name=name,
      num_classes=images.num_classes,
      activation="gelu",
      stochastic_depth=0.1,
      compute_dtype="bfloat16",
    ),
    optimizer=Adam(
      weight_decay=0.04,
      end_weight_decay=0.4,
      clip_norm=3.0,
      ema=0.996,
      end_ema=1.0,
      ema_corrected=False,
    ),
    schedule=Schedule(
      learning_rate=RATE * BATCH / 256,
      warmup=Duration(epochs=10),
      decay="cosine",
      end_learning_rate=1e-6,
    ),
    data=Data(
      dataset="imagenet",
      train=images.train,
      image_size=224,
      crop_area=(0.4, 1.0),
      crop_rule="random_resized",
      resampling="torchvision_bicubic",
      flip=True,
    ),
    evaluate={"neighbours": Nearest(train=images.train, test=images.validation)},
    checkpoint=Checkpoint(every=Duration(epochs=1), keep_every=Duration(epochs=100)),
  )
  asked = replace(recipe)
  schedule = dataclasses.replace(recipe.schedule, learning_rate=RATE * asked.batch_size / 256)
  whole = asked.duration.epochs or epochs
  objective = Settings(
    temperature_warmup=min(WARMUP / whole, 1.0), frozen_prototypes=min(FROZEN / whole, 1.0)
  )
  return to_config_dict(dataclasses.replace(recipe, schedule=schedule, objective=objective))
