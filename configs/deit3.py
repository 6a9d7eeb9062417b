r"""DeiT III on ImageNet from scratch, and its fine-tuning at 224 pixels (Touvron et al., 2022,
"DeiT III: Revenge of the ViT", arXiv 2204.07118).

  python -m vit_jax.main --config=configs/deit3.py:B
  python -m vit_jax.main --config=configs/deit3.py:B,finetune --config.init_from=workdirs/deit3-B

Models: S (ViT-S/16, trained at 224 pixels, without fine-tuning), B (ViT-B/16, 192), L (ViT-L/16,
192) and H (ViT-H/14, 154).
Published: S 81.4, B 83.8, L 84.9 and H 85.2% top-1 on ImageNet's validation set, at 224 pixels.
Cost by vit-jax cost: 28, 79, 276 and 480 exaFLOPs; fine-tuning 2.7 (B), 9.5 (L) and 26 (H).
Settings are those of the published commands (README_revenge.md of the authors' code): 800 epochs,
batch 2048, LAMB at 3e-3 (S: 4e-3) with epsilon 1e-8, weight decay 0.05 and clipping at 1, 5 epochs
of warm-up, cosine to 1e-5; binary cross-entropy, the mean over classes, with every label of a
blended image true; MixUp 0.8 or CutMix 1; 3-Augment with colour jitter 0.3, each image three times
in a batch; LayerScale from 1e-4; stochastic depth, the same in all blocks, 0.05, 0.2, 0.45 and 0.6;
random crops by torchvision's rule, from 8% of the area; the whole smaller side of scored images is
seen.
Fine-tuning: 20 epochs, batch 512, AdamW at 1e-5 with weight decay 0.1, 5 epochs of warm-up, softmax
with label smoothing 0.1, timm's RandAugment, MixUp 0.8 or CutMix 1; stochastic depth as before, of
H 0.55.
Otherwise than there: batch 2016, so that it holds each image three times (2048 is not divisible by
3); initial weights but the head's (xavier-uniform; there a normal distribution of 0.02); the class
token has a position embedding too; warm-up begins at 0 instead of 1e-6; images are resized
bilinearly without smoothing, not bicubically with it; pixels that a rotation uncovers are grey, not
ImageNet's mean; MixUp and CutMix draw one share and one rectangle for the whole batch, there for
each GPU; queries, keys and values are three arrays for LAMB, and one there. The command for H says
160 pixels, of which patches of 14 see 154.
Needs `vit-jax prepare build imagenet2012`. Not run here: it needs accelerators.
"""

import dataclasses

from vit_jax.config import Data, Duration, Loss, Model, Schedule, to_config_dict
from vit_jax.data.augmentation.color_jitter import ColorJitter
from vit_jax.data.augmentation.rand_augment_timm import RandAugmentTimm
from vit_jax.data.augmentation.three_augment import ThreeAugment
from vit_jax.learning.classification import Settings
from vit_jax.learning.optimizers.adam import Adam
from vit_jax.learning.optimizers.lamb import LAMB
from vit_jax.recipes import choice, options
from vit_jax.recipes.imagenet import CLASSES, on_imagenet


@dataclasses.dataclass(frozen=True)
class Size:
  """What differs from model to model; the second rate of stochastic depth is for fine-tuning."""

  name: str
  side: int
  rates: tuple[float, float]
  learning_rate: float = 3e-3


SIZES = {
  "S": Size("ViT-S/16", 224, (0.05, 0.0), learning_rate=4e-3),
  "B": Size("ViT-B/16", 192, (0.2, 0.2)),
  "L": Size("ViT-L/16", 192, (0.45, 0.45)),
  "H": Size("ViT-H/14", 154, (0.6, 0.55)),
}
BATCH = 2016  # 2048 there; every image comes three times in a batch, on 8, 16 or 32 devices
CROP = dict(crop_area=(0.08, 1.0), crop_rule="random_resized")


def get_config(argument="B"):
  """One size, from scratch or fine-tuned."""
  name, *words = argument.split(",")
  if options(words, "finetune"):
    return to_config_dict(finetune(SIZES[choice(name, *(size for size in SIZES if size != "S"))]))
  return to_config_dict(pretrain(SIZES[choice(name, *SIZES)]))


def pretrain(size):
  """800 epochs from scratch."""
  return on_imagenet(
    side=size.side,
    crop=1.0,
    batch_size=BATCH,
    duration=Duration(epochs=800),
    model=dataclasses.replace(model(size.name, size.rates[0]), head_std=0.02),
    objective=Settings(mixup=0.8, cutmix=1.0, blended="whole"),
    loss=Loss(kind="sigmoid", over_classes="mean"),
    optimizer=LAMB(epsilon=1e-8, weight_decay=0.05, clip_norm=1.0, ema=0.0),
    schedule=schedule(size.learning_rate),
    data=Data(**CROP, repeats=3, augment=(ThreeAugment(), ColorJitter(strength=0.3))),
  )


def finetune(size):
  """20 epochs at 224 pixels."""
  return on_imagenet(
    crop=1.0,
    batch_size=512,
    duration=Duration(epochs=20),
    model=model(size.name, size.rates[1]),
    objective=Settings(mixup=0.8, cutmix=1.0),
    loss=Loss(label_smoothing=0.1),
    optimizer=Adam(weight_decay=0.1, ema=0.0),
    schedule=schedule(1e-5),
    data=Data(**CROP, augment=(RandAugmentTimm(),)),
    # The head is that of the pre-training, so that no `new_head` requires weights.
    origins=(("init_from", "a run of this recipe without finetune"),),
  )


def model(name, rate):
  """A ViT with LayerScale and exact GELU."""
  return Model(
    name=name,
    num_classes=CLASSES,
    activation="gelu",
    layer_scale=True,
    layer_scale_init=1e-4,
    stochastic_depth=rate,
    stochastic_depth_rule="uniform",
    compute_dtype="bfloat16",
  )


def schedule(rate):
  """Five epochs of warm-up, then a cosine to 1e-5, the default of the authors' code."""
  return Schedule(
    learning_rate=rate, warmup=Duration(epochs=5), decay="cosine", end_learning_rate=1e-5
  )
