"""A small ViT on the handwritten digits that ship inside scikit-learn (1,797 images, 8 x 8 px)."""

from vit_jax import config as c


def get_config():
  """The recipe."""
  digits = lambda split: c.Dataset(source="digits", split=split)
  return c.to_config_dict(
    c.Config(
      batch_size=64,
      duration=c.Duration(epochs=20),
      log_every=c.Duration(steps=10),
      evaluate_every=c.Duration(epochs=2),
      model=c.Model(name="ViT-Ti/2", width=64, mlp_dim=256, heads=4, depth=4, num_classes=10),
      optimizer=c.Optimizer(weight_decay=0.1, clip_norm=1.0),
      schedule=c.Schedule(learning_rate=2e-3, warmup=c.Duration(steps=100)),
      data=c.Data(
        train=digits("train"),
        evaluate={"test": digits("test")},
        image_size=8,
        crop_area=(0.6, 1.0),
        flip=False,
      ),
      checkpoint=c.Checkpoint(every=c.Duration(steps=200)),
    )
  )
