r"""Fine-tuning of masked autoencoders on ImageNet (He et al., "Masked autoencoders are scalable
vision learners", 2022, arXiv 2111.06377).

  python -m vit_jax.main --config=configs/mae_finetune.py:B --config.init_from=PATH

PATH: weights of ViT-B/16, ViT-L/16 (L) or ViT-H/14 (H) that were trained without labels, such as a
folder of timm's vit_base_patch16_224.mae.
Published, by the authors' code: 83.66, 85.95 and 86.93% top-1 on ImageNet's validation set; 7 hours
11 minutes (B) and 8 hours 52 minutes (L) on 32 V100, 13 hours 9 minutes (H) on 64.
Cost by vit-jax cost: 13.5, 24 and 64 exaFLOPs.
Settings are those of the published commands (FINETUNE.md): batch 1024, 100 epochs (L, H: 50), AdamW
with weight decay 0.05, 5 epochs of warm-up, cosine to 1e-6; learning rate 2e-3 (L, H: 4e-3), which
is 5e-4 (1e-3) for 256 images; layer-wise decay of the learning rate 0.65 (L, H: 0.75); stochastic
depth 0.1, 0.2 and 0.3, rising linearly; label smoothing 0.1, timm's RandAugment, random erasing of
a quarter of the images, MixUp 0.8 or CutMix 1; random crops by torchvision's rule, from 8% of
the area.
Otherwise than there: the class token goes into the head, which the authors say does as well as
their mean of the patches; the head begins at zero; what is erased becomes uniform noise, there
normal; pixels that a rotation uncovers are grey, not ImageNet's mean; MixUp and CutMix draw one
share and one rectangle for the whole batch, there for each GPU.
Weights of other libraries than timm's may need --config.model.activation=gelu_tanh.
Needs `vit-jax prepare build imagenet2012`. Not run here: it needs accelerators.
"""

import dataclasses

from vit_jax.config import Data, Duration, Loss, Model, Schedule, to_config_dict
from vit_jax.data.augmentation.rand_augment_timm import RandAugmentTimm
from vit_jax.data.augmentation.random_erasing import RandomErasing
from vit_jax.learning.classification import Settings
from vit_jax.learning.optimizers.adam import Adam
from vit_jax.recipes import choice
from vit_jax.recipes.following import unchanged, with_rate_of_batch
from vit_jax.recipes.imagenet import CLASSES, on_imagenet


@dataclasses.dataclass(frozen=True)
class Size:
  """What differs from model to model; `base_rate` is the learning rate for 256 images."""

  name: str
  epochs: int
  base_rate: float
  layer_decay: float
  stochastic_depth: float


SIZES = {
  "B": Size("ViT-B/16", 100, 5e-4, 0.65, 0.1),
  "L": Size("ViT-L/16", 50, 1e-3, 0.75, 0.2),
  "H": Size("ViT-H/14", 50, 1e-3, 0.75, 0.3),
}


def get_config(size="B", replace=unchanged):
  """One size; the learning rate grows with the batch."""
  chosen = SIZES[choice(size, *SIZES)]
  recipe = on_imagenet(
    batch_size=1024,
    duration=Duration(epochs=chosen.epochs),
    new_head=True,
    model=Model(
      name=chosen.name,
      num_classes=CLASSES,
      activation="gelu",
      stochastic_depth=chosen.stochastic_depth,
      compute_dtype="bfloat16",
    ),
    objective=Settings(mixup=0.8, cutmix=1.0),
    loss=Loss(label_smoothing=0.1),
    optimizer=Adam(weight_decay=0.05, layer_decay=chosen.layer_decay, ema=0.0),
    schedule=Schedule(
      warmup=Duration(epochs=5),
      decay="cosine",
      end_learning_rate=1e-6,
    ),
    data=Data(
      crop_area=(0.08, 1.0),
      crop_rule="random_resized",
      resampling="torchvision_bicubic",
      augment=(RandAugmentTimm(), RandomErasing(probability=0.25)),
    ),
  )
  return to_config_dict(with_rate_of_batch(recipe, chosen.base_rate, replace))
