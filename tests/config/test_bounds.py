"""Every setting has bounds; what they allow is accepted or refused in one line, within seconds."""

import contextlib
import dataclasses
import functools
import math
import time

import pytest

from tests import resolved
from vit_jax import config as c
from vit_jax.config import recipe_file
from vit_jax.config.fields import MAX_ITEMS, MAX_TEXT
from vit_jax.devices import hosts
from vit_jax.devices.hosts import Hosts
from vit_jax.evaluation.classification import Classification
from vit_jax.evaluation.few_shot import FewShot
from vit_jax.evaluation.nearest_neighbours import Nearest
from vit_jax.extras.settings_page import groups
from vit_jax.learning.optimizers.sgd import SGD
from vit_jax.process.text import one_line, shown
from vit_jax.training import run as runs
from vit_jax.training import steps

SECONDS = 20
SIZES = "patch", "depth", "width", "mlp_dim", "heads"
PAIR = c.Dataset("digits", "train", subset=200), c.Dataset("digits", "test")
GOOD = resolved.config(
  duration=c.Duration(steps=10),
  batch_size=64,
  model=c.Model(name="ViT-Ti/16", num_classes=10),
  optimizer=SGD(),
  data=c.Data(
    train=c.Dataset("digits", "train"),
    image_size=32,
    threads=1,
  ),
  evaluate={
    "test": Classification("digits", "test"),
    "probe": FewShot(*PAIR, shots=(1,)),
    "knn": Nearest(*PAIR),
  },
)
NUMBERS = (math.nan, math.inf, -math.inf, 1e300, -1e300, 10**400, -(10**400), -(10**12))


def settings(values, path=()):
  """(path, default) of every setting below a group."""
  for key, value in values.items():
    if isinstance(value, dict):
      yield from settings(value, (*path, key))
    else:
      yield (*path, key), value


PATHS = dict(settings(c.to_dict(GOOD)))
NUMERIC = [path for path, default in PATHS.items() if type(default) in (int, float)]


def with_value(path, value):
  values = c.to_dict(GOOD)
  group = functools.reduce(dict.__getitem__, path[:-1], values)
  if path[-1] in ("steps", "epochs", "examples") and path[0] != "profile":  # one unit is given
    group.update(steps=0, epochs=0.0, examples=0)
  group[path[-1]] = value
  return values


def test_every_setting_says_what_it_means_and_every_number_has_both_bounds():
  for kind in groups():
    for field in dataclasses.fields(kind):
      assert "group" in field.metadata or field.metadata["meaning"], field
      if field.type in (int, float, c.Size):
        assert None not in (field.metadata["low"], field.metadata["high"]), field


def test_what_is_out_of_bounds_is_refused():
  for path, default in PATHS.items():
    wrong = NUMBERS if path in NUMERIC else ()
    wrong = ["x" * (MAX_TEXT + 1)] if type(default) is str else wrong
    wrong = [(1,) * (MAX_ITEMS + 1)] if type(default) is tuple else wrong
    for value in wrong:
      with pytest.raises(c.ConfigError, match=rf"^config\.{path[0]}"):
        c.from_dict(with_value(path, value))


@pytest.mark.parametrize("path", NUMERIC, ids=".".join)
def test_the_bounds_are_accepted_or_refused_within_seconds(path):
  part = lambda group, key: group[key] if isinstance(group, dict) else getattr(group, key)
  group = functools.reduce(part, path[:-1], GOOD)
  field = next(field for field in dataclasses.fields(group) if field.name == path[-1])
  for bound in ("low", "high", "off"):
    if field.metadata[bound] is None:
      continue
    begin = time.process_time()
    kind = int if field.type is c.Size else field.type
    config = c.from_dict(with_value(path, kind(field.metadata[bound])))
    with contextlib.suppress(c.ConfigError):
      resolved.checked(config)
      if path[0] in ("batch_size", "data", "evaluate"):
        runs.open_data(config)
      steps.durations_in_steps(config, 1437)
    assert time.process_time() - begin < SECONDS


@pytest.mark.parametrize(
  ("path", "value", "message"),
  [
    ("objective.mixup", 1e-300, r"mixup=1e-300 .* least is 0\.001, or 0\.$"),
    ("objective.mixup", 1e300, r"mixup=1e\+300 .* most is 1000\.0, or 0\.$"),
    ("data.threads", 99999999, "threads=99999999 .* most is 1024"),
    ("model.depth", 100000, "depth=100000 .* most is 256"),
    *((f"model.{key}", 0, f"{key}=0 .* ViT-Ti/16; give at least 1, or auto") for key in SIZES),
    ("model", dict(name="ViT-Ti/9999"), r"image_size=32 is not divisible .*; nearest: none"),
    ("optimizer.decay_rules", ((".*", math.nan),), "a factor in 0 to 10000"),
    ("data.crop_aspect", (1e-9, 1.0), r"0\.01 <= least <= largest <= 100"),
  ],
  ids=shown,
)
def test_messages(path, value, message):
  with pytest.raises(c.ConfigError, match=message):
    resolved.checked(c.from_dict(with_value(tuple(path.split(".")), value)))


def test_a_list_on_the_command_line_may_have_as_many_items():
  """Its text is not measured as that of a path is."""
  key = "objective.class_weights"
  for count in (1000, MAX_ITEMS):
    weights = (0.12345678901234567,) * count
    assert recipe_file.replaced(c.Config(), {key: str(weights)}).objective.class_weights == weights
  with pytest.raises(c.ConfigError, match=r"class_weights has a length of 65,537; the most is 65,"):
    recipe_file.replaced(c.Config(), {key: str((1.0,) * (MAX_ITEMS + 1))})
  for wrong in ({key: "(" * 10**7}, {"seed": "1" * (MAX_TEXT + 1)}):
    with pytest.raises(c.ConfigError, match=r"a length of [\d,]* characters; the most is "):
      recipe_file.replaced(c.Config(), wrong)


def test_a_batch_larger_than_the_training_set():
  with pytest.raises(c.ConfigError, match="batch_size=5000 is more than the 1437 training images"):
    runs.open_data(dataclasses.replace(GOOD, batch_size=5000))


def test_more_steps_than_can_be_counted():
  long = dataclasses.replace(GOOD, duration=c.Duration(epochs=1e9))
  with pytest.raises(c.ConfigError, match=r"config\.duration is .* the most is 2,147,483,647"):
    steps.durations_in_steps(long, 1437)


@pytest.mark.parametrize(
  ("hosts_given", "message"),
  [
    *((Hosts(text, 2, 0), "must be HOST:PORT") for text in ("foo:x", ":1", "foo", "foo:99999")),
    *((Hosts(text, 2, 0), "must be HOST:PORT") for text in ("foo:1:2", "a b:1", "http://foo:1")),
    *((Hosts("foo:1", *pair), "^--process") for pair in ((0, 0), (2, 2), (2, -1), (10**9, 0))),
    *((Hosts(text, 2, 1), None) for text in ("foo:1", "[::1]:65535", "a-b.c_d:80")),
  ],
  ids=str,
)
def test_hosts_of_the_command_line(hosts_given, message):
  allowed = contextlib.nullcontext()
  with pytest.raises(c.ConfigError, match=message) if message else allowed:
    hosts.check(hosts_given)


def test_one_line():
  assert one_line("aü数\n\0\x1b\udc80\u2028") == "aü数\\n\\x00\\x1b\\udc80\\u2028"
  line = one_line("begin" + "x" * 10**6 + "end")
  assert len(line) < 4_000
  assert (line[:5], line[-3:]) == ("begin", "end")
