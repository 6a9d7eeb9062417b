r"""ViT-S/16 on ImageNet from scratch (Beyer et al., "Better plain ViT baselines", 2022).

  python -m vit_jax.main --config=configs/simple_vit_s16_i1k.py:90

The argument is the number of epochs: 90, 150 or 300.
Published: 76.5, 78.5 and 80.0% top-1 on ImageNet's validation set (arXiv 2205.01580, Table 1);
6 to 7 hours for 90 epochs on a TPU v3-8. Cost by vit-jax cost: 3.1, 5.2 and 10.4 exaFLOPs.
Settings are those of the published code, big_vision/configs/vit_s16_i1k.py: batch 1024, Adam at
1e-3 with a first moment in bfloat16, 10,000 steps of warm-up, cosine, clipping at 1, RandAugment
(2 operations of magnitude 10), MixUp with Beta(0.2, 0.2), fixed sine-cosine positions, the mean of
the patches, and a layer of tanh before the head; 99% of the training images. Its weight decay of
1e-4 follows the schedule but is not multiplied by the learning rate of 1e-3; here it is, hence 0.1.
Otherwise than there: RandAugment, as docs/augmentation.md says; scored images are resized
bilinearly without smoothing, there by the mean of an area.
Needs `vit-jax prepare build imagenet2012`. Not run here: it needs an accelerator.
"""

from vit_jax.config import Data, Duration, Model, Schedule, to_config_dict
from vit_jax.config.data import INCEPTION
from vit_jax.data.augmentation.rand_augment import RandAugment
from vit_jax.learning.classification import Settings
from vit_jax.learning.optimizers.adam import Adam
from vit_jax.recipes import choice
from vit_jax.recipes.imagenet import CLASSES, on_imagenet

RATE, DECAY = 1e-3, 1e-4


def get_config(epochs="90"):
  """The recipe for 90, 150 or 300 epochs."""
  recipe = on_imagenet(
    split="train[:99%]",
    batch_size=1024,
    duration=Duration(epochs=choice(epochs, 90, 150, 300)),
    model=Model(
      name="ViT-S/16",
      num_classes=CLASSES,
      pool="gap",
      positions="sincos2d",
      representation_layer=True,
      compute_dtype="bfloat16",
    ),
    objective=Settings(mixup=0.2),
    optimizer=Adam(moment_dtype="bfloat16", weight_decay=DECAY / RATE, clip_norm=1.0, ema=0.0),
    schedule=Schedule(learning_rate=RATE, warmup=Duration(steps=10_000), decay="cosine"),
    data=Data(crop_area=INCEPTION, augment=(RandAugment(layers=2, magnitude=10),)),
  )
  return to_config_dict(recipe)
