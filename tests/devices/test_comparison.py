"""Processes of a run tell one another what they run, and end together where it differs."""

import threading
import types

import jax
import pytest

from vit_jax.config import ConfigError, RunError
from vit_jax.devices import hosts
from vit_jax.devices.hosts import Told


def told(*facts):
  return [Told(f"host{i}", "", one) for i, one in enumerate(facts)]


UNKNOWN = {"a": hosts.UNKNOWN}


@pytest.mark.parametrize(
  ("facts", "words"),
  [
    (({"a": "1"}, {"a": "1"}, {"a": "1"}), ""),
    ((UNKNOWN, {"a": "1"}, {"a": "1"}), ""),
    ((UNKNOWN, {"a": "1"}, {"a": "2"}), "a is not known in process 0"),
    (({"s": "1"}, {"s": "2"}), "s is 1 in process 0 (host0) and 2 in process 1 (host1). Give"),
    (({"x": "1"}, {}), "x is 1 in process 0 (host0) and not there in process 1 (host1)"),
    (({}, {"x": "1"}), "x is not there in process 0 (host0) and 1 in process 1"),
    (({"x": "1"}, {"x": "1"}, {"x": "2"}), "x is 1 in processes 0, 1 and 2 in process 2 (host2)"),
    (({"x": "1"},) * 9 + ({"x": "2"},), "x is 1 in processes 0, 1, 2, 3 and more and 2 in proc"),
    (({"x": "y" * 999}, {"x": "z"}), f"x is {'y' * 200}... in process 0"),
    (
      (dict.fromkeys("abcdef", "1"), dict.fromkeys("abcdef", "2")),
      "d is 1 in process 0 (host0) and 2 in process 1 (host1); 2 more differ. Give",
    ),
  ],
)
def test_each_difference_is_named_with_its_values_and_processes(facts, words):
  said = hosts.differences(told(*facts))
  assert words in said
  assert bool(words) == bool(said)


def test_a_process_that_does_not_start_is_named_first():
  some = [Told("one", "", {"a": "1"}), Told("two", "There is no folder.", {})]
  said = hosts.differences(some)
  assert said == "Process 1 on host two does not start: There is no folder."


class Store:
  """The store of a coordinator, with threads for processes."""

  def __init__(self):
    self._values, self._changed = {}, threading.Condition()

  def key_value_set(self, key, value):
    with self._changed:
      assert key not in self._values
      self._values[key] = value
      self._changed.notify_all()

  def blocking_key_value_get(self, key, milliseconds):
    with self._changed:
      if not self._changed.wait_for(lambda: key in self._values, milliseconds / 1000):
        raise jax.errors.JaxRuntimeError("DEADLINE_EXCEEDED")
      return self._values[key]


def compared(monkeypatch, *calls, processes=None):
  """What each process raises, in words; "" for nothing."""
  store, raised, here = Store(), [""] * len(calls), threading.local()

  class State:
    client, num_processes = store, processes or len(calls)
    process_id = property(lambda _: here.process)

  monkeypatch.setattr(hosts.distributed, "global_state", State())
  monkeypatch.setattr(hosts, "SLACK", 5)

  def run(process, call):
    here.process = process
    try:
      call()
    except (ConfigError, RunError) as error:
      raised[process] = f"{type(error).__name__} {error}"

  threads = [threading.Thread(target=run, args=pair) for pair in enumerate(calls)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join(30)
  return raised


def test_all_processes_hear_the_verdict(monkeypatch):
  facts = lambda value: lambda: hosts.compare_processes("x", {"a": value})
  assert compared(monkeypatch, facts("1"), facts("1"), facts("1")) == ["", "", ""]
  first, *others = compared(monkeypatch, facts("1"), facts("2"), facts("1"))
  assert "a is 1 in processes 0, 2 and 2 in process 1" in first
  assert others == [first, first]
  assert first.startswith("ConfigError ")


def test_a_refusal_ends_all_and_the_refused_one_says_its_own(monkeypatch):
  def refused():
    with hosts.told("x", seconds=9):
      raise ConfigError("Mine.")

  first, second = compared(monkeypatch, lambda: hosts.compare_processes("x", {}), refused)
  assert first.startswith("ConfigError Process 1 on host ")
  assert first.endswith(" does not start: Mine.")
  assert second == "ConfigError Mine."


def test_a_silent_process_is_named(monkeypatch):
  call = lambda: hosts.compare_processes("x", {}, seconds=0.05)
  first, second = compared(monkeypatch, call, call, processes=3)
  assert first.startswith("RunError Process 2 has not answered within 0.05 s")
  assert second == first


def test_all_processes_share_one_limit_and_wait_longer_for_the_first(monkeypatch):
  """Otherwise one blames the first process, which still waits for others in turn."""
  now, waits = [0.0], []

  class Late(Store):
    def blocking_key_value_get(self, key, milliseconds):
      waits.append(milliseconds / 1000)
      if not key.endswith("verdict"):
        now[0] += min(8, waits[-1])
        milliseconds = 0 if waits[-1] < 8 else milliseconds
      return super().blocking_key_value_get(key, milliseconds)

  state = types.SimpleNamespace(client=Late(), process_id=0, num_processes=2)
  monkeypatch.setattr(hosts.distributed, "global_state", state)
  monkeypatch.setattr(hosts, "time", types.SimpleNamespace(monotonic=lambda: now[0]))
  with pytest.raises(RunError, match="Process 1 has not answered within 10 s"):
    hosts.compare_processes("x", {}, seconds=10)
  assert waits == [10, 2, 2 * 10 + hosts.SLACK]


def test_a_silent_first_process_is_named_with_the_time_that_it_had(monkeypatch):
  class Silent(Store):
    def blocking_key_value_get(self, key, milliseconds):
      return super().blocking_key_value_get(key, 0)

  state = types.SimpleNamespace(client=Silent(), process_id=1, num_processes=2)
  monkeypatch.setattr(hosts.distributed, "global_state", state)
  words = r"Process 0 .* within 80 s \(twice config\.stall_seconds, and 60 s\); see"
  with pytest.raises(RunError, match=words):
    hosts.compare_processes("x", {}, seconds=10)
