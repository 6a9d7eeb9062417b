"""What processes of a run, and starts of it, must have in common."""

import dataclasses
import socket
import sys

import jax
import numpy as np
import pytest

from tests import programs
from tests.tiny_run import CONFIG
from vit_jax import config as c
from vit_jax.data.identity import Identity
from vit_jax.evaluation.classification import Classification
from vit_jax.process import program
from vit_jax.training import fingerprint

DATA = {"config.data.train": Identity(9, "2 ('a', 'b')", "n", "s", "c")}
FACTS = fingerprint.of_start(CONFIG, "none", DATA)


def differing(config=CONFIG, newest="none", data=None):
  now = fingerprint.of_start(config, newest, DATA if data is None else data)
  return {name for name in now.keys() | FACTS.keys() if now.get(name) != FACTS.get(name)}


@pytest.mark.parametrize("own", ["", "own"])
def test_a_cache_of_programs_that_the_user_has_chosen_is_kept(own, tmp_path, monkeypatch):
  keys = "jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs"
  before = [getattr(jax.config, key) for key in keys]
  monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
  monkeypatch.setattr(fingerprint, "CACHE", tmp_path / "cache")
  try:
    jax.config.update(keys[0], own)
    fingerprint.keep_compiled_programs()
    assert jax.config.jax_compilation_cache_dir == (own or str(tmp_path / "cache"))
  finally:
    for key, value in zip(keys, before, strict=True):
      jax.config.update(key, value)


@pytest.mark.parametrize(
  ("changes", "name"),
  [
    (dict(seed=1), "config.seed"),
    (dict(schedule=c.Schedule(learning_rate=1.0)), "config.schedule.learning_rate"),
    (dict(duration=c.Duration(steps=6)), "config.duration.steps"),
    (dict(verify_every=2), "config.verify_every"),
    (dict(stall_seconds=2.0), "config.stall_seconds"),
    (dict(evaluate={"test": Classification("digits", "train")}), "config.evaluate.test.split"),
    (dict(data=dataclasses.replace(CONFIG.data, flip=False)), "config.data.flip"),
  ],
)
def test_a_setting_that_differs_is_named(changes, name):
  assert name in differing(dataclasses.replace(CONFIG, **changes))


def test_hosts_may_have_their_own_paths_and_threads():
  data = dataclasses.replace(CONFIG.data, threads=1, train=c.Dataset("folder:/mine", "train"))
  own = dataclasses.replace(CONFIG, data=data, init_from="/mine/w.npz", origins=(("a", "b"),))
  assert differing(own) == set()


def test_data_checkpoints_and_program_are_compared(monkeypatch):
  assert differing(newest="step 5") == {"the newest checkpoint"}
  for field, value in dict(images=8, classes="2 ('b', 'a')", content="d").items():
    other = DATA["config.data.train"]._replace(**{field: value})
    assert differing(data={"config.data.train": other}) == {f"config.data.train ({field})"}
  assert len(differing(data={})) == len(Identity._fields)
  monkeypatch.setenv("JAX_DEFAULT_MATMUL_PRECISION", "float32")
  assert differing() == {"JAX_DEFAULT_MATMUL_PRECISION"}
  monkeypatch.setattr(program, "code", lambda: "other")
  assert differing() == {"JAX_DEFAULT_MATMUL_PRECISION", "the code"}


UNHEARD = """
from vit_jax.config import ConfigError
from vit_jax.devices.hosts import Hosts
from vit_jax.training import fingerprint

fingerprint.TELLING = 1
with fingerprint.refusal_told(Hosts("127.0.0.1:{port}", 2, 1)):
  raise ConfigError("There is no folder.")
"""


def test_a_refusal_is_printed_also_if_no_other_process_hears_it():
  """JAX aborts a process that cannot connect."""
  with socket.create_server(("127.0.0.1", 0)) as free:
    port = free.getsockname()[1]
  result = programs.run([sys.executable, "-c", UNHEARD.format(port=port)], timeout=60)
  assert (result.returncode, programs.message(result)) == (2, "vit_jax: There is no folder.")


def test_weights_and_heads_are_told_apart_by_names_types_values_and_order():
  one = {"a": {"b": np.arange(6, dtype=np.float32)}, "c": np.zeros((0, 3), np.float32)}
  others = [
    {"a": {"d": one["a"]["b"]}, "c": one["c"]},
    one | {"a": {"b": one["a"]["b"] + 1}},
    one | {"a": {"b": one["a"]["b"].reshape(2, 3)}},
    one | {"a": {"b": one["a"]["b"].astype(np.float16)}},
  ]
  sums = [str(fingerprint.of_weights(each)) for each in (one, *others)]
  assert len(set(sums)) == 5
  assert str(fingerprint.of_weights({"c": one["c"], "a": one["a"]})) == sums[0]
  heads = [str(fingerprint.of_head(names)) for names in ((), ("a", "b"), ("b", "a"), ("ab",))]
  assert len(set(heads)) == 4


def test_another_program_at_a_resume_is_said():
  before = {"jax": "1", "the code": "x", "XLA_FLAGS": "--xla_a=1"}
  before |= {"the code of lost": "y", "the code of mine": "1"}
  assert fingerprint.changes(before, before) == []
  assert fingerprint.changes({}, before) == []  # of a checkpoint that does not tell
  now = {"jax": "2", "the code": "x", "JAX_A": "1"}
  now |= {"the code of another": "y", "the code of mine": "2"}
  assert fingerprint.changes(before, now) == [
    "JAX_A: not set -> '1'",
    "XLA_FLAGS: '--xla_a=1' -> not set",
    "jax: '1' -> '2'",
    "the code of mine: '1' -> '2'",
  ]
