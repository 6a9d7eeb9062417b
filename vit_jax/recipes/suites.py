"""Suites of evaluations: ImageNet and its variants, few-shot probes, nearest neighbours."""

from vit_jax.config import AUTO, Config, Data, Dataset, Duration, Model
from vit_jax.evaluation.classification import Classification
from vit_jax.evaluation.few_shot import FewShot
from vit_jax.evaluation.nearest_neighbours import Nearest
from vit_jax.recipes.loading import largest_side, module_of

# For models with 480 x 480 pixels, ObjectNet's images are resized to a smaller side of 512.
WIDER = 512 / 480

SETS = {
  "imagenet": Classification("tfds:imagenet2012", "validation"),
  "real": Classification("tfds:imagenet2012_real", "validation", label_key="real_label"),
  "v2": Classification("tfds:imagenet_v2/matched-frequency", "test"),
  "a": Classification("tfds:imagenet_a", "test", classes=200),
  "r": Classification("tfds:imagenet_r", "test", classes=200),
  "sketch": Classification("tfds:imagenet_sketch", "test"),
  "objectnet": Classification(resize=WIDER),
}

TEST = Dataset("tfds:imagenet2012", "validation")
OF_FEATURES = {
  "few_shot": {"imagenet": FewShot(Dataset("tfds:imagenet2012", "train"), TEST)},
  "knn": {"imagenet": Nearest(Dataset("tfds:imagenet2012", "train[:10%]"), TEST)},
}

# Suites with a fixed image size, pixels; the others use the size of the weights.
PUBLISHED_SIDES = {"objectnet": 480, "few_shot": 224, "knn": 224}

# Suite -> evaluation sets of the head.
SUITES = {name: (name,) for name in SETS} | {
  "variants": tuple(SETS),
  "few_shot": (),
  "knn": (),
  "own": ("own",),
}


def evaluation(suite: str, model: str = "") -> Config:
  """A suite of configs/evaluate.py, for one model or for any.

  Images are prepared as the weights expect. Suites with a published size use the largest size up to
  it that fits the model's patches. For ObjectNet, the smaller side is resized to 512/480 of the
  image size, as published, and the centre is cropped; for the nearest neighbours to 256/224, as in
  DINO's code.

  Raises:
    ConfigError: there is no such model.
  """
  side = PUBLISHED_SIDES.get(suite, AUTO)
  if model and side == AUTO:
    module_of(model)  # refuses what is no model
  elif model:
    side = largest_side(model, side)
  resize = 0
  if side == AUTO:
    resize = AUTO
  elif suite == "knn":
    resize = round(side * 256 / 224)
  sets = {name: SETS.get(name, Classification()) for name in SUITES[suite]}
  return Config(
    batch_size=256,
    duration=Duration(),
    model=Model(name=model or AUTO, compute_dtype="float32"),
    data=Data(image_size=side, evaluate_resize=resize),
    evaluate=sets | OF_FEATURES.get(suite, {}),
  )
