"""The order of the loop, and its callbacks: when states are saved and saved again, a profile."""

import contextlib
import errno
import os
import re
import types

import jax
import numpy as np
import pytest

from tests.seams.program import StopAfter
from vit_jax.config import ConfigError, NonFinite, RunError
from vit_jax.config import EarlyStopping as EarlyStoppingSettings
from vit_jax.config import Profile as ProfileSettings
from vit_jax.extras.buckets.errors import RefusedError
from vit_jax.process import agreement
from vit_jax.storage.base import Retry
from vit_jax.storage.metrics_log import Writer
from vit_jax.storage.saving import SaveError
from vit_jax.training.callbacks import Checkpointing, Metrics, Profile, TrainingError
from vit_jax.training.early_stopping import Best, EarlyStopping
from vit_jax.training.loop import Callback, Loop, MetricAccumulator
from vit_jax.training.steps import ImageCount

# --- the order of the loop ---


class Noted(Callback):
  """Notes each call; asks for the states of even steps, and ends the run after a step."""

  def __init__(self, calls, name, end=None):
    self._calls, self._name, self._end = calls, name, end

  def _note(self, *what):
    self._calls.append((self._name, *what))

  def start(self, moment):
    self._note("start", moment.step)
    moment.ending = moment.ending or moment.step == self._end

  def before_step(self, step):
    self._note("before", step)

  def dispatched(self, step, metrics):
    self._note("dispatched", step, metrics)

  def wants(self, step):
    return step % 2 == 0

  def after_step(self, moment):
    self._note("after", moment.step, moment.state, moment.stopping, moment.ending)
    moment.ending = moment.ending or moment.step == self._end

  def end(self, moment):
    self._note("end", moment.step)


def trained(*, first=0, total=4, stop=None, end=None, callbacks=2, kind=Noted):
  """What a run of made-up steps calls, and whether it reached its end."""
  calls = []

  def update(state, batch):
    calls.append(("step", batch))
    return state + batch, f"metrics {batch}"

  run = types.SimpleNamespace(
    resume_point=ImageCount(first, 0, 1),
    steps=types.SimpleNamespace(total=total),
    batches=lambda: contextlib.nullcontext(iter(range(first + 1, 99))),
  )
  nothing = lambda *_: contextlib.nullcontext()
  monitor = dict.fromkeys(("waiting", "dispatching", "dispatched"), nothing)
  monitor["start"] = lambda step: calls.append(("time", step))
  watchdog = types.SimpleNamespace(beat=lambda doing: calls.append(("beat", doing)))
  noted = [kind(calls, name, end) for name in "ab"[:callbacks]]
  loop = Loop(run, update, noted, StopAfter(stop), types.SimpleNamespace(**monitor), watchdog)
  return calls, loop.train(0)


def test_a_step_is_dispatched_before_the_callbacks_and_the_state_is_given_in_their_order():
  calls, finished = trained(total=3)
  step = lambda n: [
    *(("a", "before", n), ("b", "before", n), ("beat", f"step {n}"), ("step", n)),
    *(("a", "dispatched", n, f"metrics {n}"), ("b", "dispatched", n, f"metrics {n}")),
  ]
  assert finished
  assert calls == [
    *(("a", "start", 0), ("b", "start", 0)),
    ("time", 0),  # what callbacks do before the first step is start-up
    *step(1),
    *step(2),
    *(("a", "after", 2, 3, False, False), ("b", "after", 2, 3, False, False)),
    *step(3),
    *(("a", "after", 3, 6, False, True), ("b", "after", 3, 6, False, True)),
    *(("b", "end", 3), ("a", "end", 3)),  # the other way round
  ]


@pytest.mark.parametrize(
  ("options", "last", "finished"),
  [
    (dict(stop=1), 1, False),
    (dict(stop=2), 2, False),
    (dict(end=2), 2, True),
    (dict(first=3), 4, True),
    (dict(first=4), None, True),
    (dict(first=3, end=3), None, True),
  ],
)
def test_where_a_run_ends(options, last, finished):
  """A run that is at its end when it is started takes no batch: `last` is None."""
  calls, ended = trained(callbacks=1, **options)
  assert ended == finished
  if last is None:
    first = options["first"]
    assert calls == [("a", "start", first), ("time", first), ("a", "end", first)]
  else:
    assert calls[-1] == ("a", "end", last)
    assert calls[-2][:3] == ("a", "after", last)


EXPIRED = RefusedError(errno.EACCES, "there are no valid credentials", "gs://bucket/images")
DAMAGED = ConfigError("The folder is damaged; give another --workdir.")


@pytest.mark.parametrize(
  ("error", "words"),
  [
    (EXPIRED, f"{EXPIRED}. Mend this, then start the same command again."),
    (DAMAGED, str(DAMAGED)),
  ],
)
def test_a_refusal_under_way_is_no_wrong_usage(error, words):
  """As with credentials that expire: what is trained is not nothing, so the status is not 2."""

  class Reads(Noted):
    def before_step(self, step):
      if step == 2:
        raise error

  with pytest.raises(RunError, match=f"^{re.escape(words)}$") as raised:
    trained(kind=Reads)
  assert not isinstance(raised.value, ConfigError)


def test_a_refusal_before_the_first_step_is_wrong_usage():
  class Refused(Noted):
    def start(self, moment):
      raise DAMAGED

  with pytest.raises(ConfigError, match="another --workdir"):
    trained(kind=Refused)


def implicit(*_):
  jax.jit(lambda x: x)(np.ones(3))


class MovesEarly(Noted):
  dispatched = implicit


class MovesLate(Noted):
  after_step = implicit


def test_arrays_move_by_explicit_calls_only():
  with pytest.raises(Exception, match="Disallowed host-to-device transfer"):
    trained(kind=MovesEarly)
  trained(total=1, kind=MovesLate)


# --- metrics ---


FINITE = dict(
  loss=np.float32(2), grad_norm=np.float32(3), update_norm=np.float32(1), bad_examples=0
)


@pytest.mark.parametrize(
  ("changes", "settings", "said", "raised"),
  [
    ({}, NonFinite(), None, None),
    (dict(skipped=1), NonFinite(), None, r"step 7: .*left out\. Last .*run/checkpoints/6\. .*skip"),
    (
      dict(skipped=3),
      NonFinite("skip", 3),
      r"step 7: .*left out \(3 of at most 3 in a row\)",
      None,
    ),
    (dict(skipped=4), NonFinite("skip", 3), None, r"step 7: .*left out\. .*non_finite\.limit"),
    (dict(update_norm=np.inf), NonFinite("skip", 3), None, r"update norm inf\. Last .*start again"),
  ],
)
@pytest.mark.parametrize("attention", ["cudnn", "xla"])
def test_an_update_that_is_not_finite(changes, settings, said, raised, attention):
  metrics, lines = metrics_of(settings, attention=attention)
  metrics.dispatched(7, FINITE | dict(skipped=0) | changes)
  with pytest.raises(TrainingError, match=raised) if raised else contextlib.nullcontext() as caught:
    metrics.dispatched(8, None)
  suggested = "config.model.attention=xla" in str(caught and caught.value)
  assert suggested == bool(raised and attention == "cudnn")
  assert len(lines) == bool(said)
  assert all(re.search(said, line) for line in lines)


def metrics_of(
  settings, *, attention="xla", taken=0, batch_size=8, bad_limit=0.01, images=1000, repeats=1
):
  """The callback of a made-up run that goes on after step 6, and the list of what it says."""
  lines = []
  session = types.SimpleNamespace(
    since=MetricAccumulator(),
    folder="run",
    checkpoints=types.SimpleNamespace(last_step=lambda: 6),
    writer=types.SimpleNamespace(say=lines.append),
  )
  run = types.SimpleNamespace(
    config=types.SimpleNamespace(
      non_finite=settings, data=types.SimpleNamespace(bad_limit=bad_limit, repeats=repeats)
    ),
    data=types.SimpleNamespace(train=range(images)),
    steps=types.SimpleNamespace(log=10**6, evaluate=0, total=10**6),
    resume_point=ImageCount(6, taken, batch_size),
    attention=attention,
  )
  metrics = Metrics(run, session)
  metrics.start(types.SimpleNamespace(state=types.SimpleNamespace(bad_examples=np.int32(3))))
  return metrics, lines


@pytest.mark.parametrize(
  ("batch_size", "broken", "limit", "ends"),
  [
    (64, [32, 32, 32], 0.01, None),  # half
    (64, [0, 33], 0.01, 8),
    (64, [0, 40, 64], 0.7, 9),  # more than half is allowed
    (64, [64, 64], 1.0, None),
    (4, [4] * 4, 0.01, None),  # half of the last 32, the others before this start
    (4, [4] * 4 + [0] * 4 + [4] * 9, 0.01, 19),
    (1, [1] * 16 + [0] * 16, 0.01, None),
    (2, [0] * 20 + [2] * 30, 0.01, 35),
  ],
)
def test_a_long_run_ends_if_most_of_its_last_images_are_broken(batch_size, broken, limit, ends):
  metrics, _ = metrics_of(NonFinite(), taken=10**7, batch_size=batch_size, bad_limit=limit)

  def go_on():
    for step, count in enumerate(np.cumsum(broken), 7):
      metrics.dispatched(step, FINITE | dict(skipped=0, bad_examples=np.int32(3 + count)))
    metrics.read_metrics()

  if ends is None:
    go_on()
    return
  with pytest.raises(TrainingError, match=f"images up to step {ends} .*is their disk mounted"):
    go_on()


@pytest.mark.parametrize("batch_size", [8, 64])
def test_images_that_were_broken_from_the_start_are_not_looked_for_on_a_lost_disk(batch_size):
  """As with a wrong number of channels, or limit of pixels."""
  metrics, _ = metrics_of(NonFinite(), batch_size=batch_size)

  def go_on():
    for step in range(7, 20):
      broken = np.int32((step - 6) * batch_size)
      metrics.dispatched(step, FINITE | dict(skipped=0, bad_examples=broken))

  with pytest.raises(TrainingError, match=r"training images .* are broken .*bad_limit=0\.01"):
    go_on()


@pytest.mark.parametrize(
  ("images", "repeats", "broken", "ends"),
  [
    (100, 1, 1, 0),
    (100, 3, 1, 0),
    (100, 1, 2, 551),
    (1000, 1, 10, 0),
    (1000, 1, 11, 10_000),
    (10**6, 1, 20_000, 1000),
  ],
)
def test_a_run_ends_if_more_images_are_broken_than_the_limit_in_whatever_order(
  images, repeats, broken, ends
):
  """The broken images come first in each pass, the worst order; `ends` is about when, 0: never."""
  metrics, _ = metrics_of(NonFinite(), batch_size=1, images=images, repeats=repeats)
  metrics._check_latest = lambda step: None
  seen = 0
  with pytest.raises(TrainingError) if ends else contextlib.nullcontext() as caught:
    for seen in range(1, 30_000):
      passes, rest = divmod(seen, images * repeats)
      metrics._check_examples(seen + 6, (passes * broken * repeats) + min(rest, broken * repeats))
  if ends:
    assert seen <= ends
    assert re.search(
      rf"\d+ of {seen} training images .* each counts in each epoch", str(caught.value)
    )


# --- checkpoints ---


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

  def make(*outcomes, seconds=10.0, looks=1, evaluate=0):
    session = types.SimpleNamespace(
      since=MetricAccumulator(),
      checkpoints=Checkpoints(*outcomes, looks=looks),
      writer=types.SimpleNamespace(say=said.append, lines=7),
      early_stopping=EarlyStopping(EarlyStoppingSettings(), Best()),
      monitor=types.SimpleNamespace(paused=lambda _: contextlib.nullcontext()),
      watchdog=types.SimpleNamespace(beat=lambda _: None),
    )
    steps = types.SimpleNamespace(save=10, log=5, evaluate=evaluate)
    data = types.SimpleNamespace(evaluations=("a set",))
    whole = lambda state: state
    run = types.SimpleNamespace(steps=steps, data=data, description=dict, saved=whole)
    return Checkpointing(run, session, Retry(seconds, clock=lambda: now[0]))

  return make, now, said


def test_a_state_is_saved_before_it_is_scored(run):
  make, _, _ = run
  saver = make(evaluate=4)
  assert [step for step in range(1, 21) if saver.wants(step)] == [4, 8, 10, 12, 16, 20]


def test_a_failed_save_is_tried_again_with_the_state_of_a_later_step(run):
  make, now, said = run
  saver = make("20 could not be saved", "")
  assert [step for step in range(1, 21) if saver.wants(step)] == [10, 20]
  saver.save("state 20", best=0, last=False)
  assert not saver.wants(21)
  (failed,) = said
  assert failed.startswith("20 could not be saved. The run goes on, and tries again for 10 s ")
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
  monkeypatch.setattr(agreement, "broadcast_bool", lambda own: first[0])
  saver = make("20 failed", "failed", seconds=0.0)
  saver.save("state 20", best=0, last=False)
  assert not saver.wants(21)  # asked only where a line is logged
  assert saver.wants(25)  # the own time is over; the first process has time
  saver.save("state 25", best=0, last=False)
  first[0] = False
  with pytest.raises(SaveError):
    saver.wants(30)


def test_several_processes_check_on_a_save_also_between_two_lines(run, monkeypatch):
  """A save has two phases; the second one begins at a check."""
  make, _, _ = run
  monkeypatch.setattr(jax, "process_count", lambda: 2)
  saver = make("", looks=2)
  saver._steps = types.SimpleNamespace(save=1000, log=1000, evaluate=0)
  saver.save("state 1000", best=0, last=False)
  left = {}
  for step in range(1001, 1201):
    assert not saver.wants(step)
    left[step] = saver.session.checkpoints.under_way
  assert max(step for step in left if left[step]) == 1099


# --- a profile ---


@pytest.mark.parametrize(
  ("first", "asked", "window", "said"),
  [
    (3, 2, [3, 4], "Profile of 2 steps"),
    (10, 1, [10, 10], "Profile of 1 steps"),
    (8, 9, [8, 10], "Profile of 3 steps"),  # it would go on beyond the run's end
    (11, 5, [], "first_step=11 was not reached"),
    (3, 0, [], None),
  ],
)
def test_the_window_of_a_profile(tmp_path, monkeypatch, first, asked, window, said):
  """Steps are counted from the first one of this command, which goes on after 5 steps."""
  lines, traced, now = [], [], [0]
  profile = profile_of(ImageCount(5, 40, 8), tmp_path, lines, first_step=first, steps=asked)
  monkeypatch.setattr(jax.profiler, "start_trace", lambda folder: traced.append(now[0]))
  monkeypatch.setattr(jax.profiler, "stop_trace", lambda: traced.append(now[0] - 1))
  for now[0] in range(1, 11):
    profile.before_step(now[0] + 5)
  now[0] = 11  # the run's end
  profile.end(types.SimpleNamespace(step=15))
  profile.close()
  assert traced == window
  assert len(lines) == bool(said)
  assert all(said in line for line in lines)


@pytest.mark.parametrize("failing", ["start_trace", "stop_trace"])
def test_a_profile_that_cannot_be_written_does_not_end_the_run(tmp_path, monkeypatch, failing):
  def fail(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

  monkeypatch.setattr(jax.profiler, "start_trace", lambda folder: None)
  monkeypatch.setattr(jax.profiler, "stop_trace", lambda: None)
  monkeypatch.setattr(jax.profiler, failing, fail)
  lines, pauses = [], []
  profile = profile_of(ImageCount(0, 0, 8), tmp_path, lines, pauses, first_step=2, steps=2)
  for step in range(1, 6):
    profile.before_step(step)
  profile.end(types.SimpleNamespace(step=5))
  (line,) = lines
  assert re.search(r"cannot be written \(OSError.*No space left.*\)\. The run goes on", line)
  assert pauses == ["profile"] * (1 if failing == "start_trace" else 2)


def profile_of(resume_point, folder, lines, pauses=None, **settings):
  """The callback; it adds what it says to `lines`, and the causes of its pauses to `pauses`."""

  def paused(cause):
    if pauses is not None:
      pauses.append(cause)
    return contextlib.nullcontext()

  config = types.SimpleNamespace(profile=ProfileSettings(**settings))
  run = types.SimpleNamespace(config=config, resume_point=resume_point)
  writer = types.SimpleNamespace(say=lines.append, follow=lambda follower: None)
  monitor = types.SimpleNamespace(paused=paused)
  return Profile(run, types.SimpleNamespace(folder=folder, writer=writer, monitor=monitor))


def test_an_error_within_the_window_ends_the_trace(tmp_path, monkeypatch):
  """So the same program can train and trace again; JAX has one trace at a time."""
  under_way = []
  monkeypatch.setattr(jax.profiler, "start_trace", under_way.append)
  monkeypatch.setattr(jax.profiler, "stop_trace", under_way.pop)
  config = types.SimpleNamespace(profile=ProfileSettings(first_step=1, steps=9))
  run = types.SimpleNamespace(config=config, resume_point=ImageCount(0, 0, 8))
  writer = Writer(tmp_path, start_step=0)
  monitor = types.SimpleNamespace(paused=lambda cause: contextlib.nullcontext())
  session = types.SimpleNamespace(folder=tmp_path, writer=writer, monitor=monitor)
  Profile(run, session).before_step(1)
  assert len(under_way) == 1
  writer.close()  # as after an error, which leaves out the end of callbacks
  assert not under_way
