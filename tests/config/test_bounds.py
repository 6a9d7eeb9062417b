"""Every setting driven to extremes: refused in one line or accepted, always within seconds."""

import dataclasses
import math
import time

import pytest

from vit_jax import config as c
from vit_jax.data.sources import digits
from vit_jax.devices import hosts
from vit_jax.devices.hosts import Hosts
from vit_jax.evaluation.classification import Classification
from vit_jax.evaluation.few_shot import FewShot
from vit_jax.evaluation.nearest_neighbours import Nearest
from vit_jax.learning.optimizers.sgd import SGD
from vit_jax.process.text import one_line, shown
from vit_jax.training import checks, steps
from vit_jax.training import run as runs

SECONDS = 5
GOOD = c.Config(
  duration=c.Duration(steps=10),
  batch_size=64,
  model=c.Model(name="ViT-Ti/16", num_classes=10),
  optimizer=SGD(),
  data=c.Data(
    train=c.Dataset("digits", "train"),
    image_size=32,
  ),
  evaluate={"test": Classification("digits", "test")},
)
PAIR = c.Dataset("digits", "train", subset=200), c.Dataset("digits", "test")
WITHOUT_A_HEAD = dataclasses.replace(
  GOOD, evaluate={"probe": FewShot(*PAIR, shots=(1,)), "knn": Nearest(*PAIR)}
)
DIGITS = {split: digits._load(split) for split in ("train", "test")}
OPENED = ("batch_size", "data", "evaluate")  # settings that data are opened with
NUMBERS = [
  *(-(10**5000), -(10**12), -1, 0, 1, 3, 10**5, 10**8, 10**12, 10**30, 10**5000),
  *(-1e300, -1e-300, -0.0, 1e-300, 1e-30, 0.5, 1e10, 1e300, math.nan, math.inf, -math.inf),
]
TEXTS = [
  *("\n", "a\nb", "a\0b", "\x1b[2J", "é", "数", "٣", "", "x" * 4096, "x" * 10**6, "(" * 2000),
  *("~nobody-here", "~nobody-here/x", "folder:~nobody-here", "csv:~nobody-here/x.csv"),
]
NAMES = [
  *("ViT-Ti/999999999", "ViT-Ti/0", "ViT-Ti/9999", "ViT-Ti/٣", "ViT-Ti/16\n", "R50x999999999"),
  *("R50x0", "R9999999x1", "R50x1+ViT-B/99999999", "R50x99999+ViT-B/16", "Axial-ViT-B/99999999"),
  *("Axial-R999", f"ViT-Ti/{'9' * 4000}", f"R{'9' * 4000}x1"),
]
TUPLES = [(), (1,), (0, 0), ("a", 1), (math.nan,) * 2, (10**5000,) * 2, (1e300,) * 2, (1,) * 10**5]


def settings(node=None, path=()):
  """(path, default) of every setting below a group, or of all."""
  for key, value in (c.to_dict(WITHOUT_A_HEAD) if node is None else node).items():
    if isinstance(value, dict):
      yield from settings(value, (*path, key))
    else:
      yield (*path, key), value


def accepted(path, value):
  """Whether the setting is accepted; if not, asserts that it is refused in the right way."""
  values = c.to_dict(WITHOUT_A_HEAD if path[0] == "evaluate" else GOOD)
  node = values
  for part in path[:-1]:
    node = node[part]
  if path[-1] in ("steps", "epochs", "examples"):  # of a duration only one unit is given
    node.update(steps=0, epochs=0.0, examples=0)
  node[path[-1]] = value
  begin, refusal = time.process_time(), ""
  try:
    config = c.from_dict(values)
    checks.check(config)
    if path[0] in OPENED:
      runs.open_data(config)
    steps.of_run(config, 1437)
  except c.ConfigError as error:
    refusal = str(error)
  assert not refusal or 10 < len(refusal) < 7000, refusal
  assert time.process_time() - begin < SECONDS, (path, shown(value))
  return not refusal


PATHS = dict(settings())


@pytest.mark.parametrize("path", PATHS, ids=".".join)
def test_extremes(path, monkeypatch):
  monkeypatch.setattr(digits, "_load", DIGITS.get)  # which else is most of the time
  default = PATHS[path]
  values = {int: NUMBERS, float: NUMBERS, str: TEXTS, tuple: TUPLES}.get(type(default), [])
  for value in [*values, *(NAMES if path == ("model", "name") else [])]:
    accepted(path, value)
  if type(default) in (int, float):
    assert not any(accepted(path, x) for x in (math.nan, math.inf, -math.inf, -1e300, 1e300))
    assert not any(accepted(path, x) for x in (10**5000, -(10**5000), -(10**12)))
  if type(default) is str:
    assert not any(accepted(path, text) for text in ("a\nb", "a\0b", "\x1b[2J", "x" * 10**6))


def test_every_number_has_both_bounds():
  def walk(kind):
    for field in dataclasses.fields(kind):
      if dataclasses.is_dataclass(field.type):
        walk(field.type)
      elif field.type in (int, float):
        assert None not in (field.metadata["low"], field.metadata["high"]), field.name

  for kind in (c.Config, c.Dataset, FewShot, Nearest):
    walk(kind)


@pytest.mark.parametrize(
  ("path", "value", "message"),
  [
    ("data.mixup", 1e-300, r"mixup=1e-300 is too small .*; the least is 0\.001, or 0\.$"),
    ("data.mixup", 1e300, r"mixup=1e\+300 is too large .*; the most is 1000\.0, or 0\.$"),
    ("data.threads", 99999999, "threads=99999999 is too large .*; the most is 1024"),
    ("data.ahead", 99999999, "ahead=99999999 is too large"),
    ("data.evaluate_resize", 100000, "evaluate_resize=100000 is too large"),
    ("model.depth", 100000, "depth=100000 is too large .*; the most is 256"),
    ("model.name", "ViT-Ti/999999999", "name='ViT-Ti/999999999' is no model"),
    ("model.name", "ViT-Ti/9999", r"image_size=32 is not divisible .*; nearest: none"),
    ("model.stages", (10**9,), r"stages=\(1000000000,\) must hold"),
    ("seed", 10**5000, "seed=a number of more than 40 digits is too large"),
    ("optimizer.decay_rules", ((".*", math.nan),), "the factor must lie in 0 to 10000"),
    ("data.crop_aspect", (1e-9, 1.0), r"0\.01 <= least <= largest <= 100"),
    ("init_from", "a\nb", r"init_from='a\\nb' holds a control character"),
  ],
  ids=shown,
)
def test_messages(path, value, message):
  values = c.to_dict(GOOD)
  *parents, last = path.split(".")
  node = values
  for part in parents:
    node = node[part]
  node[last] = value
  with pytest.raises(c.ConfigError, match=message):
    checks.check(c.from_dict(values))


def test_a_batch_larger_than_the_training_set():
  with pytest.raises(c.ConfigError, match="batch_size=5000 is more than the 1437 training images"):
    runs.open_data(dataclasses.replace(GOOD, batch_size=5000))


def test_more_steps_than_can_be_counted():
  long = dataclasses.replace(GOOD, duration=c.Duration(epochs=1e9))
  with pytest.raises(c.ConfigError, match=r"config\.duration is .* the most is 2,147,483,647"):
    steps.of_run(long, 1437)


@pytest.mark.parametrize(
  "coordinator",
  [
    *("foo:x", "foo:", ":1", "foo", ":", "foo:99999", "foo:0", "foo:-1", "foo:1:2", "a b:1"),
    *("a\n:1", "foo:٣", "http://foo:1", "foo:1e3", "x" * 10**5),
  ],
  ids=shown,
)
def test_coordinators(coordinator):
  with pytest.raises(c.ConfigError, match="must be HOST:PORT") as caught:
    hosts.check(Hosts(coordinator, 2, 0))
  assert len(str(caught.value)) < 500


@pytest.mark.parametrize("coordinator", ["foo:1", "10.0.0.1:8476", "[::1]:65535", "a-b.c_d:80"])
def test_coordinators_that_may_be(coordinator):
  hosts.check(Hosts(coordinator, 2, 1))


@pytest.mark.parametrize("numbers", [(0, 0), (2, 2), (2, -1), (10**9, 0), (10**5000, 0)], ids=shown)
def test_numbers_of_processes(numbers):
  with pytest.raises(c.ConfigError, match=r"^--process"):
    hosts.check(Hosts("foo:1", *numbers))


def test_one_line_is_not_long():
  line = one_line("begin" + "x" * 10**6 + "end")
  assert len(line) < 4_000
  assert line.startswith("begin")
  assert line.endswith("end")


def test_one_line():
  assert one_line("aü数\n\0\x1b\udc80\u2028") == "aü数\\n\\x00\\x1b\\udc80\\u2028"
