"""Settings that contradict one another are refused with key, value and the nearest valid choice."""

import dataclasses

import pytest

from vit_jax import checks
from vit_jax import config as c

GOOD = c.Config(
  duration=c.Duration(steps=10), batch_size=64, data=c.Data(train=c.Dataset(source="digits"))
)


def replaced(group, **changes):
  return dataclasses.replace(GOOD, **{group: dataclasses.replace(getattr(GOOD, group), **changes)})


def test_a_good_config_passes():
  checks.check(GOOD)


@pytest.mark.parametrize(
  ("config", "message"),
  [
    (replaced("data", train=c.Dataset()), r"data\.train\.source is empty.*folder:DIR.*num_classes"),
    (replaced("data", image_size=225), r"image_size=225.*patch size 16.*nearest: 224, 240"),
    (replaced("data", image_size=9), r"image_size=9 .*nearest: 16\."),
    (replaced("data", crop_area=(0.5, 0.1)), r"crop_area=\(0\.5, 0\.1\)"),
    (replaced("data", crop_area=(0.5,)), r"crop_area"),
    (replaced("data", crop_area=(0.5, 1.5)), r"crop_area.*<= 1"),
    (replaced("data", crop_aspect=("a", "b")), r"crop_aspect"),
    (replaced("data", evaluate_resize=200), r"evaluate_resize=200 is smaller.*at least 224"),
    (replaced("model", name="ViT-BB/16"), r"config\.model\.name.*nearest: ViT-B/16"),
    (replaced("model", heads=7), r"heads=7 does not divide the width 768; nearest: (6|8)"),
    (replaced("model", attention="cudnn"), r"cudnn.*bfloat16"),
    (dataclasses.replace(GOOD, accumulation=3), r"batch_size=64.*accumulation=3.*nearest: 63, 66"),
    (dataclasses.replace(GOOD, duration=c.Duration()), r"config\.duration is 0"),
    (replaced("optimizer", decay_rules=(("a", "b"),)), r"decay_rules holds \('a', 'b'\)"),
    (replaced("optimizer", decay_rules=(("(", 1.0),)), r"decay_rules.*'\('.*regex"),
  ],
)
def test_contradictions(config, message):
  with pytest.raises(c.ConfigError, match=message):
    checks.check(config)
