"""Random settings: each is refused in one sentence before anything is made, or the run is sound."""

import dataclasses
import functools
import json
import math
import random
import resource
import signal
import threading

import pytest

from tests import programs, resolved
from vit_jax import config as cfg

CASES = (0, 600)  # config/test_bounds.py tries every setting in every test run
MAX_REFUSAL = 4_000  # characters of a refusal
REFUSED_IN = 5  # seconds of computing, once everything is imported
LONG = 120  # seconds after which a run, perhaps of a million steps, is asked to stop
STUCK = 300  # seconds
MEMORY = 12 * 2**30  # bytes that a run may ask for
STOPPED = (75, -signal.SIGTERM)  # its state saved, or nothing to save yet
HANDLED = (0, 1, 2, *STOPPED)  # done; cannot go on, which it says; refused; asked to stop

WHOLE = (0, -1, 1, 2, 3, 7, 64, 10**6, 10**12, 2**31 - 1, 2**31, 2**63, 2**64, -(2**63))
REAL = ("nan", "inf", "-inf", "-0.0", "1e-300", "1e300", "1e-3", "0.5", "1.0", "1e6", "-1.0")
WORDS = (
  *("", " ", "a\nb", "a\rvit_jax: Done", "\x1b[2J"),
  *("\u202egnp", "💥", "\udcff", "%s{}", "x" * 100_000),
)
PATHS = ("/dev/zero", "/dev/null", "/proc/self/mem", "/", "..", "folder:/", "folder:/dev", "~")
TUPLES = (
  *("()", "(1,)", "(-1, 2)", "('a',)", "(1e300, 1e300)"),
  *("((1, 2), 3)", "(0.5, 0.1)", "(nan,)", "["),
)
TYPELESS = ("maybe", "None", "{}", "1_000", "0x10", "1e3", "")


def settings():
  """{dotted key: default} of every setting that can be given on the command line."""

  def below(values, path):
    for key, value in values.items():
      if isinstance(value, dict):
        yield from below(value, f"{path}{key}.")
      else:
        yield f"{path}{key}", value

  return dict(below(cfg.to_dict(resolved.config()), ""))


def value(rng: random.Random, key: str, default):
  """A value that the setting may or may not allow, as text."""
  if rng.random() < 0.1:
    return rng.choice((*WORDS, *TYPELESS, *TUPLES))
  if isinstance(default, bool):
    return rng.choice(("True", "False", *TYPELESS))
  if isinstance(default, int):
    return str(rng.choice(WHOLE))
  if isinstance(default, float):
    return rng.choice(REAL)
  if isinstance(default, tuple):
    return rng.choice(TUPLES)
  return rng.choice((*choices_of(key), *WORDS, *PATHS))


def choices_of(key: str):
  """The values that a setting lists as its choices."""
  *groups, last = key.split(".")
  group = functools.reduce(getattr, groups, resolved.config())
  (field,) = (field for field in dataclasses.fields(group) if field.name == last)
  return field.metadata.get("choices", ())


def cases(count: int):
  """Command lines: of each, one to three settings that are drawn, key and value."""
  known = settings()
  found = []
  for number in range(count):
    rng = random.Random(number)
    keys = rng.sample(sorted(known), k=rng.choice((1, 1, 1, 2, 3)))
    flags = [f"--config.{key}={value(rng, key, known[key])}" for key in keys]
    found.append((f"{number}-{'-'.join(keys)}", flags))
  return found


BASE = dict.fromkeys(("duration", "schedule.warmup", "evaluate_every"), 2) | dict(log_every=1)


@pytest.fixture(scope="module", autouse=True)
def _imported():
  """The first run does not pay for the imports of all."""
  programs.fork_server()
  programs.run([*programs.MAIN, "--help"])


def test_refused_in_a_sentence_or_sound(case, tmp_path):
  workdir = tmp_path / "run"
  status, output, seconds = run(command(workdir, case))
  assert status in HANDLED, output
  assert "Traceback" not in output, output
  said = [line for line in output.splitlines() if line.startswith("vit_jax: ")]
  assert len(said) == (status in (1, 2)), output
  assert all(char.isprintable() for line in said for char in line), said
  if status == 2:
    assert not workdir.exists(), output
    assert len(output) < MAX_REFUSAL
    assert seconds < REFUSED_IN, output
  if status in (0, *STOPPED):
    for metrics in workdir.glob("metrics.jsonl"):
      for line in metrics.read_text().splitlines():
        assert all(math.isfinite(figure) for figure in json.loads(line).values()), line


def command(workdir, case):
  """Two steps of the digits with the settings of a case, whose durations replace the usual ones.

  They may be in another unit.
  """
  usual = {f"--config.{group}.steps": steps for group, steps in BASE.items()}
  groups = {flag.partition("=")[0].rpartition(".")[0] for flag in case}
  flags = [*programs.digits(workdir), *(f"{key}={steps}" for key, steps in usual.items())]

  def replaced(flag):
    group, _, unit = flag.partition("=")[0].rpartition(".")
    return unit == "steps" and group in groups

  return [*(flag for flag in flags if not replaced(flag)), *case]


def run(command):
  """Exit status, everything that is said, and seconds of computing; its memory is limited."""
  with programs.start(command) as process:
    resource.prlimit(process.pid, resource.RLIMIT_DATA, (MEMORY, MEMORY))
    asked = threading.Timer(LONG, process.send_signal, (signal.SIGTERM,))
    asked.start()
    output = process.finish(STUCK)
  asked.cancel()
  assert process.returncode != -signal.SIGKILL, f"still at work after {STUCK} s: {output}"
  return process.returncode, output, process.cpu_seconds
