r"""Pre-training of masked autoencoders on ImageNet without labels (He et al., "Masked autoencoders
are scalable vision learners", 2022, arXiv 2111.06377).

  python -m vit_jax.main --config=configs/mae.py:B --workdir=workdirs/mae
  python -m vit_jax.main --config=configs/mae_finetune.py:B --config.init_from=workdirs/mae

L and H give ViT-L/16 and ViT-H/14. The second command fine-tunes; published accuracy after it:
83.6, 85.9 and 86.9%. Cost of pre-training by vit-jax cost: 120, 255 and 597 exaFLOPs.
Settings are those of the paper (Table 8; 1,600 epochs, Section 4.3) and of its code: batch 4096,
AdamW (0.9, 0.95) with weight decay 0.05, learning rate 1.5e-4 for 256 images, 40 epochs
of warm-up, cosine to 0; 75% of the patches removed; a decoder of 8 blocks, 512 wide, with 16 heads;
normalised pixels; bicubic crops of 20 to 100% of the area, flipped.
Otherwise than there: kernels begin as in this project's other models, the class token at zero;
class token and mask embedding do not decay; pixels are scaled to -1 to 1, not by ImageNet's mean
and deviation of each channel.
Needs `vit-jax prepare build imagenet2012`. Not run here: it needs accelerators.
"""

import dataclasses

from vit_jax.config import Checkpoint, Config, Data, Duration, Model, Schedule, to_config_dict
from vit_jax.extras.mae import POSITIONS, Settings
from vit_jax.learning.optimizers.adam import Adam
from vit_jax.recipes import choice
from vit_jax.recipes.following import unchanged, with_rate_of_batch
from vit_jax.recipes.pretraining import DATASETS, IN_LOOP_PROBE

RATE = 1.5e-4  # for 256 images
MODELS = {"B": "ViT-B/16", "L": "ViT-L/16", "H": "ViT-H/14"}


def get_config(size="B", replace=unchanged):
  """One size; the learning rate grows with the batch."""
  images = DATASETS["imagenet"]
  probe = dataclasses.replace(IN_LOOP_PROBE, train=images.train, test=images.validation)
  recipe = Config(
    batch_size=4096,
    duration=Duration(epochs=1600),
    log_every=Duration(steps=50),
    evaluate_every=Duration(epochs=20),
    objective=Settings(),
    model=Model(
      name=MODELS[choice(size, *MODELS)],
      num_classes=images.num_classes,
      positions=POSITIONS,
      activation="gelu",
      compute_dtype="bfloat16",
    ),
    optimizer=Adam(beta2=0.95, weight_decay=0.05, ema=0.0),
    schedule=Schedule(warmup=Duration(epochs=40), decay="cosine"),
    data=Data(
      dataset="imagenet",
      train=images.train,
      image_size=224,
      crop_area=(0.2, 1.0),
      crop_rule="random_resized",
      resampling="torchvision_bicubic",
      flip=True,
      evaluate_resize=256,
    ),
    evaluate={"imagenet": probe},
    checkpoint=Checkpoint(every=Duration(epochs=1), keep_every=Duration(epochs=200)),
  )
  return to_config_dict(with_rate_of_batch(recipe, RATE, replace))
