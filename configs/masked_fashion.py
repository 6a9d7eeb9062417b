r"""A small ViT on Fashion-MNIST without labels, by masked patch prediction (Section 4.6).

  vit-jax prepare build fashion_mnist
  python -m vit_jax.main --config=configs/masked_fashion.py
  python -m vit_jax.main --config=configs/vit_fashion.py:plain --config.init_from=WORKDIR \
    --config.new_head=True

9,188 steps on 58,800 images; 1,200 others are held out. The last command fine-tunes from it.
"""

from vit_jax.config import (
  Checkpoint,
  Config,
  Data,
  Dataset,
  Duration,
  Model,
  Schedule,
  to_config_dict,
)
from vit_jax.evaluation.nearest_neighbours import Nearest
from vit_jax.extras.masked_patches.objective import Masked
from vit_jax.extras.masked_patches.reconstruction import Reconstruction
from vit_jax.learning.optimizers.adam import Adam


def get_config():
  """The recipe."""
  train = Dataset(source="tfds:fashion_mnist", split="train[:98%]")
  held_out = Dataset(source="tfds:fashion_mnist", split="train[98%:]")
  return to_config_dict(
    Config(
      batch_size=64,
      accumulation=1,
      duration=Duration(epochs=10),
      log_every=Duration(steps=125),
      evaluate_every=Duration(epochs=2),
      objective=Masked(),
      model=Model(
        name="ViT-Ti/4",
        depth=4,
        width=96,
        mlp_dim=192,
        heads=3,
        num_classes=10,
        compute_dtype="float32",
      ),
      optimizer=Adam(weight_decay=0.1, clip_norm=1.0, ema=0.0),
      schedule=Schedule(learning_rate=1.5e-3, warmup=Duration(steps=500)),
      data=Data(
        train=train, image_size=28, crop_area=(1.0, 1.0), crop_aspect=(1.0, 1.0), flip=True
      ),
      evaluate={
        "neighbours": Nearest(train=train, test=held_out),
        "held_out": Reconstruction(**vars(held_out)),
      },
      checkpoint=Checkpoint(every=Duration(epochs=2)),
    )
  )
