"""Pre-training by masked patch prediction (Section 4.6, Appendix B.1.2)."""

from collections.abc import Callable

from ml_collections import ConfigDict

from vit_jax.config import (
  Checkpoint,
  Config,
  ConfigError,
  Data,
  Duration,
  Model,
  Schedule,
  to_config_dict,
)
from vit_jax.extras.masked_patches.objective import Masked
from vit_jax.extras.masked_patches.reconstruction import Reconstruction
from vit_jax.learning.optimizers.adam import Adam
from vit_jax.recipes.loading import choice
from vit_jax.recipes.pretraining import DATASETS, IN_LOOP_PROBE, of_paper

LENGTHS = {"1m": 1_000_000, "100k": 100_000}  # steps; the gain hardly grows after 100,000
TARGETS = ("mean_color", "down4", "pixels")
RATES = ("0.5", "0.15")


def masked(model: str, dataset: str, *, length: str) -> Callable[..., ConfigDict]:
  """Makes `get_config` for a recipe with the argument LENGTH[,TARGET[,RATE]].

  Args:
    model: a model name from the paper.
    dataset: a key of `DATASETS`.
    length: the length without an argument, a key of `LENGTHS`.
  """

  def get_config(argument=length):
    fields = argument.split(",")
    if len(fields) > 3:
      raise ConfigError(f"The recipe's argument {argument!r} is not LENGTH[,TARGET[,RATE]].")
    defaults = (length, TARGETS[0], RATES[0])
    chosen, target, rate = (*fields, *defaults[len(fields) :])
    steps = LENGTHS[choice(chosen, *LENGTHS)]
    rate = float(choice(rate, *RATES))
    target = choice(target, *TARGETS)
    return to_config_dict(pretrain_masked(model, dataset, steps=steps, target=target, rate=rate))

  return get_config


def pretrain_masked(model: str, dataset: str, *, steps: int, target: str, rate: float) -> Config:
  """The paper's settings: Adam, 2e-4, warm-up of 10,000 steps, cosine, batch 4096, 224 px.

  The weight decay of 0.1 is that of Section 4.1 for all models; Appendix B.1.2 does not name one.
  """
  data = DATASETS[dataset]
  return Config(
    batch_size=4096,
    duration=Duration(steps=steps),
    log_every=Duration(steps=50),
    evaluate_every=Duration(steps=5000),
    objective=Masked(rate=rate, target=target),
    model=Model(name=model, num_classes=data.num_classes, compute_dtype="bfloat16"),
    optimizer=Adam(weight_decay=0.1, ema=0.0),
    schedule=Schedule(learning_rate=2e-4, warmup=Duration(steps=10_000), decay="cosine"),
    data=Data(train=data.train, **of_paper(dataset)),
    evaluate={"imagenet": IN_LOOP_PROBE, "val": Reconstruction(**vars(data.validation))},
    checkpoint=Checkpoint(every=Duration(steps=1000), keep_every=Duration(steps=50_000)),
  )
