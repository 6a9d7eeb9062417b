r"""ViTs on ImageNet from scratch with seven levels of augmentation (Steiner et al., "How to train
your ViT?", 2021, arXiv 2106.10270).

  python -m vit_jax.main --config=configs/augreg.py:MODEL,LEVEL[,regularised]

MODEL: ViT-Ti/16, ViT-S/32, ViT-S/16, ViT-B/32, ViT-B/16, ViT-L/16, R26+ViT-S/32 or another.
LEVEL: none, light1, light2, medium1, medium2, strong1 or strong2: RandAugment's operations and
magnitude, and the alpha of MixUp, as in the published code (big_vision/configs/vit_i1k.py). light1
is not nothing: two operations of magnitude 0.
regularised: dropout 0.1 and stochastic depth 0.1 (rising linearly with the block) together.
300 epochs, batch 4096, Adam at 1e-3, weight decay 0.1 (the paper also tries 0.03), 10,000 steps of
warm-up, cosine, clipping at 1; 99% of the training images.
Otherwise than the published code: no layer of tanh before the head (the published weights have
none); RandAugment, as docs/augmentation.md says; scored images are resized bilinearly without
smoothing, there by the mean of an area.
Published weights of such runs, fine-tuned at 224 pixels, have these accuracies on the validation
set of ImageNet by timm (results/results-imagenet.csv):
  ViT-S/16,medium2               78.85%
  ViT-B/32,medium2,regularised   74.89%
  ViT-B/16,strong2,regularised   79.15%
Cost of these three by vit-jax cost: 10.5, 10.1 and 40.1 exaFLOPs.
Needs `vit-jax prepare build imagenet2012`. Not run here: it needs an accelerator.
"""

from vit_jax.config import ConfigError, Data, Duration, Model, Schedule, to_config_dict
from vit_jax.config.data import INCEPTION
from vit_jax.data.augmentation.rand_augment import RandAugment
from vit_jax.learning.classification import Settings
from vit_jax.learning.optimizers.adam import Adam
from vit_jax.recipes import choice, options
from vit_jax.recipes.imagenet import CLASSES, on_imagenet

# RandAugment's operations and magnitude, and MixUp's alpha.
LEVELS = {
  "none": (0, 0, 0.0),
  "light1": (2, 0, 0.0),
  "light2": (2, 10, 0.2),
  "medium1": (2, 15, 0.2),
  "medium2": (2, 15, 0.5),
  "strong1": (2, 20, 0.5),
  "strong2": (2, 20, 0.8),
}


def get_config(argument="ViT-S/16,medium2"):
  """One model at one level."""
  model, _, rest = argument.partition(",")
  level, *words = rest.split(",")
  if not level:
    raise ConfigError(f"The recipe's argument {argument!r} is not MODEL,LEVEL[,regularised].")
  layers, magnitude, mixup = LEVELS[choice(level, *LEVELS)]
  rate = 0.1 if options(words, "regularised") else 0.0
  augment = (RandAugment(layers=layers, magnitude=magnitude),) if layers else ()
  recipe = on_imagenet(
    split="train[:99%]",
    batch_size=4096,
    duration=Duration(epochs=300),
    model=Model(
      name=model,
      num_classes=CLASSES,
      dropout=rate,
      stochastic_depth=rate,
      compute_dtype="bfloat16",
    ),
    objective=Settings(mixup=mixup),
    optimizer=Adam(moment_dtype="bfloat16", weight_decay=0.1, clip_norm=1.0, ema=0.0),
    schedule=Schedule(learning_rate=1e-3, warmup=Duration(steps=10_000), decay="cosine"),
    data=Data(crop_area=INCEPTION, augment=augment),
  )
  return to_config_dict(recipe)
