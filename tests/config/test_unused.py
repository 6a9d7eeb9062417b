"""A setting that has no effect with the others is refused, and accepted where it has one."""

import dataclasses

import pytest

from tests import resolved
from vit_jax import config as c
from vit_jax.config import recipe_file, resolve
from vit_jax.config.fields import Labels, group_in
from vit_jax.weights.card import Card

MASKED = "objective.kind=masked_patches"
WEIGHTS = "init_from=w.npz schedule.learning_rate=0.01"
DECAY = "optimizer.weight_decay=0.1"
AVERAGE = "optimizer.ema=0.9 optimizer.ema_corrected=false"
LORA = "lora.rank=8"
TAUGHT = "objective.kind=distillation"
SIGMOID = "loss.kind=sigmoid"
METRIC = "early_stopping.metric=val/top1"
RESIZED = ["data.train_resize=64", "data.train_resize_ratio=1.2"]
# (a setting, others with which it counts, others with each of which it has no effect)
RULES = [
  ("data.crop_area=(0.5,1)", "", [*RESIZED, "data.train_pad=4"]),
  ("data.crop_aspect=(1,1)", "", [*RESIZED, "data.train_pad=4"]),
  ("data.crop_rule=random_resized", "", [*RESIZED, "data.train_pad=4"]),
  ("data.train_resize_ratio=1.5", "", ["data.train_resize=64"]),
  ("data.train_pad=4", "", RESIZED),
  ("data.evaluate_squeeze=true", "data.evaluate_resize=256", [""]),
  ("data.cache_side=64", "data.cache=x", [""]),
  ("new_head=true", WEIGHTS, ["", f"{WEIGHTS} {MASKED}"]),
  ("new_positions=true", WEIGHTS, [""]),
  (
    "keep_representation=true",
    f"{WEIGHTS} model.representation_layer=true",
    [WEIGHTS, "model.representation_layer=true"],
  ),
  ("class_names=data", WEIGHTS, ["", f"{WEIGHTS} {MASKED}", f"{WEIGHTS} new_head=true"]),
  ("model.head_bias=-1", "", [MASKED]),
  ("model.head_std=0.02", "", [MASKED]),
  ("loss.kind=sigmoid", "", [MASKED]),
  ("loss.label_smoothing=0.1", "", [MASKED]),
  ("loss.over_classes=mean", SIGMOID, [""]),
  ("objective.blended=whole", SIGMOID, [""]),
  ("objective.temperature=2", f"{TAUGHT} objective.target=soft", [TAUGHT]),
  ("model.layer_scale_init=0.1", "model.layer_scale=true", [""]),
  ("model.stochastic_depth_rule=uniform", "model.stochastic_depth=0.1", [""]),
  ("optimizer.layer_decay=0.5", "", ["optimizer.trainable=head/.*"]),
  ("lora.alpha=8", f"{WEIGHTS} {LORA}", [""]),
  ("lora.kernels=.*/query/kernel", f"{WEIGHTS} {LORA}", [""]),
  ("optimizer.decay_kind=coupled", DECAY, ["", "optimizer.kind=sgd schedule.learning_rate=0.01"]),
  ("optimizer.decay_rules=('.*',1.0),", DECAY, [""]),
  ("optimizer.end_weight_decay=0.4", DECAY, [""]),
  ("optimizer.end_ema=1", AVERAGE, ["optimizer.ema=0.9", f"{AVERAGE} optimizer.ema=0"]),
  ("schedule.drops=0.5", "schedule.decay=steps", ["", "schedule.decay=linear"]),
  ("schedule.end_learning_rate=0.1", "", ["schedule.decay=steps", "schedule.decay=constant"]),
  ("non_finite.limit=3", "non_finite.action=skip", [""]),
  ("checkpoint.keep_every.steps=5", "", ["checkpoint.every.steps=0"]),
  ("checkpoint.keep_every.epochs=5", "", ["checkpoint.every.steps=0"]),
  ("checkpoint.keep_every.examples=5", "", ["checkpoint.every.steps=0"]),
  ("early_stopping.patience=3", METRIC, ["", f"{METRIC} evaluate_every.epochs=0"]),
  ("profile.first_step=3", "profile.steps=2", [""]),
]


def with_words(*words):
  texts, _ = recipe_file.split_settings([f"--config.{word}" for word in " ".join(words).split()])
  return recipe_file.replaced(c.Config(), texts)


def check(*words):
  """As a run does it: with what the settings leave to rules, of data and weights that are made up.

  Raises:
    ConfigError: a setting has no effect.
  """
  asked = with_words(*words)
  card = Card(image_size=224) if asked.init_from else None
  known = dict(images=1000, side=224, labels=Labels(), card=card, devices=1)
  resolve.check_unused(asked, resolved.without_data(asked, architecture=resolved.model(), **known))


@pytest.mark.parametrize(("setting", "good", "bad"), RULES, ids=lambda value: str(value)[:40])
def test_a_setting_counts_only_where_its_conditions_hold(setting, good, bad):
  check(good, setting)
  for others in bad:
    with pytest.raises(c.ConfigError, match=rf"^config\.{setting.partition('=')[0]}=.* no effect"):
      check(others, setting)


def test_every_setting_with_a_condition_is_above():
  def conditional(group, path="", used_if=()):
    for field in dataclasses.fields(group):
      conditions = (*used_if, *field.metadata.get("used_if", ()))
      inner = group_in(field)
      if inner and not inner.by_name and not inner.listed:
        for _, settings in inner.classes():
          yield from conditional(settings, f"{path}{field.name}.", conditions)
      elif conditions:
        yield f"{path}{field.name}"

  assert {*conditional(c.Config)} == {setting.partition("=")[0] for setting, *_ in RULES}


@pytest.mark.parametrize(
  ("words", "reason", "given", "default"),
  [
    ("schedule.drops=0.25", "with config.schedule.decay='cosine'", "schedule.decay=steps", "()"),
    ("new_head=true", "without config.init_from", "init_from too", "False"),
    (
      f"model.head_bias=-1 {MASKED}",
      "with config.objective.kind='masked_patches'",
      "objective.kind=classification",
      "0.0",
    ),
  ],
)
def test_the_message_says_what_to_do(words, reason, given, default):
  with pytest.raises(c.ConfigError) as refused:
    check(words)
  key = words.partition("=")[0]
  advice = f"no effect {reason}; give --config.{given}, or leave config.{key} at {default}."
  assert str(refused.value).endswith(advice)
