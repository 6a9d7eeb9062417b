"""Settings recorded by a run, and used by another command."""

import dataclasses
import json

import pytest

from vit_jax import config as c
from vit_jax.config import recorded
from vit_jax.config.fields import LEFT_TO_RULE
from vit_jax.evaluation.classification import Classification
from vit_jax.evaluation.few_shot import FewShot
from vit_jax.learning.optimizers.sgd import SGD
from vit_jax.storage import workdir

MINE = c.Config(
  batch_size=7,
  duration=c.Duration(epochs=2),
  data=c.Data(crop_area=(0.1, 0.9)),
  evaluate={"mine": Classification("digits", "test"), "some": FewShot(shots=(1, 5))},
)


def test_what_was_written_down_comes_back(tmp_path):
  workdir.write_config(tmp_path, c.to_dict(MINE))
  assert recorded.read_config(tmp_path) == MINE


@pytest.mark.parametrize(
  ("content", "message"),
  [
    (None, r"config\.json is not there, .*give others"),
    *((text, "does not hold the settings") for text in ("[]", "null", "{", "[" * 100_000)),
    ('{"evaluate": {"x": 3}}', r"config\.evaluate\.x=3 is one value"),
    ('{"evaluate": 3}', r"config\.evaluate=3 is one value"),
    ('{"batch_sise": 3}', r"config\.batch_sise is not a setting; nearest: config\.batch_size"),
    ('{"batch_size": 0}', r"config\.batch_size=0 is too small"),
  ],
)
def test_what_is_no_settings_of_a_run(tmp_path, content, message):
  if content is not None:
    (tmp_path / "config.json").write_text(content)
  with pytest.raises(c.ConfigError, match=message) as caught:
    recorded.read_config(tmp_path, "give others")
  assert len(str(caught.value).splitlines()) == 1


def test_a_checkpoint_has_no_settings_and_its_run_is_named(tmp_path):
  place = tmp_path / "a run" / workdir.CHECKPOINTS / "500"
  place.mkdir(parents=True)
  with pytest.raises(c.ConfigError, match=r"a checkpoint.*/a run' --config\.evaluate_step=500"):
    recorded.read_config(place)


def test_settings_that_were_not_recorded_have_their_defaults():
  values = json.loads(json.dumps(c.to_dict(MINE)))
  del values["data"]["crop_area"], values["evaluate"]["some"]["seeds"]
  missing = dataclasses.replace(MINE.data, crop_area=c.Data().crop_area)
  assert c.from_dict(values) == dataclasses.replace(MINE, data=missing)


def test_a_part_of_a_group_has_the_defaults_of_its_place():
  found = c.from_dict({"checkpoint": {"every": {}, "keep_every": {}}}).checkpoint
  assert (found.every, found.keep_every) == (LEFT_TO_RULE, c.Duration())
  named = c.from_dict({"evaluate": {"test": {"split": "test"}}}).evaluate["test"]
  assert named == Classification(split="test")
  assert c.from_dict({"optimizer": {"kind": "sgd"}}).optimizer == SGD()


def test_other_kinds_differ_in_the_kind_and_in_what_both_have():
  old, new = c.to_dict(c.Config()), c.to_dict(c.Config(optimizer=SGD(weight_decay=0.1)))
  assert recorded.changes(old, new) == [
    "config.optimizer.kind: 'adam' -> 'sgd'",
    "config.optimizer.weight_decay: 0.0 -> 0.1",
  ]
