"""When states are saved, and saved again after a failure; several processes decide alike."""

import contextlib
import types

import jax
import pytest

from vit_jax.process import agreement
from vit_jax.process.retry import Retry
from vit_jax.storage.saving import SaveError
from vit_jax.training.checkpointing import Checkpointing


class Checkpoints:
  """Saves that end as the test says, one after the other, when they were looked at often enough."""

  def __init__(self, *outcomes, looks):
    self._outcomes, self._outcome, self.saved = list(outcomes), None, []
    self._looks, self._left = looks, 0

  @property
  def under_way(self):
    return self._left > 0

  def save(self, state, meta, *, best):
    self.saved.append(state)
    self._left = self._looks

  def look(self):
    if self.under_way:
      self._left -= 1
      self._outcome = None if self._left else self._outcomes.pop(0)

  def wait(self):
    while self.under_way:
      self.look()

  def outcome(self):
    outcome, self._outcome = self._outcome, None
    return outcome


@pytest.fixture
def run():
  """A saver of a run that saves every 10 steps and logs every 5, its clock and what it said."""
  now, said = [0.0], []

  def make(*outcomes, seconds=10.0, looks=1):
    session = types.SimpleNamespace(
      checkpoints=Checkpoints(*outcomes, looks=looks),
      writer=types.SimpleNamespace(say=said.append),
      monitor=types.SimpleNamespace(paused=lambda _: contextlib.nullcontext()),
      watchdog=types.SimpleNamespace(beat=lambda _: None),
    )
    run = types.SimpleNamespace(steps=types.SimpleNamespace(save=10, log=5))
    return Checkpointing(run, session, {}, Retry(seconds, clock=lambda: now[0]))

  return make, now, said


def test_a_failed_save_is_tried_again_with_the_state_of_a_later_step(run):
  make, now, said = run
  saver = make("20 could not be saved", "")
  assert [step for step in range(1, 21) if saver.wants(step)] == [10, 20]
  saver.save("state 20", best=0, last=False)
  assert not saver.wants(21)
  assert said == [
    "20 could not be saved. The run goes on, and tries again for 10 s "
    "(config.checkpoint.retry_seconds)."
  ]
  now[0] = 1.0
  assert saver.wants(22)
  saver.save("state 22", best=0, last=False)
  assert not saver.wants(23)
  assert said[1:] == ["A checkpoint is saved again."]
  now[0] = 100.0
  assert not saver.wants(24)
  assert saver.session.checkpoints.saved == ["state 20", "state 22"]


@pytest.mark.parametrize("outcome", ["22 failed", ""])
def test_while_a_save_is_under_way_no_other_one_is_tried(run, outcome):
  make, now, _ = run
  saver = make("20 failed", outcome, "", looks=3)
  saver.save("state 20", best=0, last=False)
  assert [step for step in range(21, 25) if saver.wants(step)] == []  # 23 learns of the failure
  now[0] = 5.0
  assert saver.wants(25)
  saver.save("state 25", best=0, last=False)
  assert [step for step in range(26, 29) if saver.wants(step)] == []
  now[0] = 9.0
  assert saver.wants(29) == bool(outcome)


def test_when_the_time_is_over_the_run_ends(run):
  make, now, _ = run
  saver = make("20 failed", "22 failed")
  saver.save("state 20", best=0, last=False)
  assert not saver.wants(21)
  now[0] = 10.0
  saver.save("state 22", best=0, last=False)
  with pytest.raises(SaveError, match=r"^22 failed\. It was tried again for 10 s\. Make room"):
    saver.wants(23)


def test_the_last_save_waits_for_its_success(run, monkeypatch):
  make, now, _ = run
  monkeypatch.setattr("time.sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
  saver = make("40 failed", "40 failed", "")
  saver.save("state 40", best=0, last=True)
  assert saver.session.checkpoints.saved == ["state 40"] * 3
  assert now[0] == 3.0


def test_of_several_processes_the_first_ones_clock_counts(run, monkeypatch):
  make, _, _ = run
  first = [True]
  monkeypatch.setattr(jax, "process_count", lambda: 2)
  monkeypatch.setattr(agreement, "answer_of_first", lambda own: first[0])
  saver = make("20 failed", "failed", seconds=0.0)
  saver.save("state 20", best=0, last=False)
  assert not saver.wants(21)  # asked only where a line is logged
  assert saver.wants(25)  # the own time is over; the first process has time
  saver.save("state 25", best=0, last=False)
  first[0] = False
  with pytest.raises(SaveError):
    saver.wants(30)
