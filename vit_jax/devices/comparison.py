"""Checks that all processes of a run agree, before they compute together.

Where they differ, a shared computation may stall, or go on with wrong numbers. They exchange facts
through the key-value store of JAX's coordinator, which needs no device.
"""

import contextlib
import json
import socket
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import jax
from jax._src import distributed  # JAX has no public API for its coordinator's store

from vit_jax.process.errors import ConfigError, RunError
from vit_jax.process.text import shortened

UNKNOWN = "not known"  # a fact that is not compared
MOST = 4  # differences in a message
LONGEST = 10.0**6  # seconds to wait, if the watchdog has no limit
SLACK = 60  # more seconds for the first process to report a timeout


class Told(NamedTuple):
  """A message from a process to the others.

  Attributes:
    host: the name of its machine.
    refusal: why it ends; "" if it goes on.
    facts: values that must be the same in all processes.
  """

  host: str
  refusal: str
  facts: Mapping[str, str]


def compare(topic: str, facts: Mapping[str, str], *, seconds: float = 0, refusal: str = ""):
  """Checks that all processes have the same facts; every process must call it.

  Args:
    topic: a word for these facts; each topic is compared once.
    facts: values by name, as a message gives them.
    seconds: how long to wait for the other processes; 0: without a limit.
    refusal: why this process does not go on; the others then end too.

  Raises:
    ConfigError: on every process: some facts differ, or a process does not go on.
    RunError: a process does not answer.
  """
  state = distributed.global_state
  if state.client is None:
    return
  told = Told(socket.gethostname(), refusal, dict(facts))
  state.client.key_value_set(_key(topic, state.process_id), json.dumps(told))
  limit = seconds or LONGEST
  if state.process_id == 0:
    verdict = _verdict(topic, state, limit)
    state.client.key_value_set(_key(topic, "verdict"), json.dumps(verdict))
  words, silent = json.loads(_of(topic, "verdict", state, limit + SLACK))
  if silent:
    raise RunError(words)
  if words:
    raise ConfigError(words)


@contextlib.contextmanager
def told(topic: str, *, seconds: float) -> Iterator[None]:
  """If an error is raised inside, the other processes end too when they compare these facts.

  The arguments are as for `compare`.
  """
  try:
    yield
  except (ConfigError, RunError) as error:
    with contextlib.suppress(ConfigError, RunError):
      compare(topic, {}, seconds=seconds, refusal=str(error))
    raise


def _key(topic: str, whose) -> str:
  return f"vit_jax/{topic}/{whose}"


def _of(topic: str, whose, state, seconds: float) -> str:
  try:
    return state.client.blocking_key_value_get(_key(topic, whose), int(seconds * 1000))
  except jax.errors.JaxRuntimeError as error:
    silent = 0 if whose == "verdict" else whose
    raise RunError(
      f"Process {silent} has not answered within {seconds:g} s "
      "(config.stall_seconds); see what it prints, and start the same command again on all hosts."
    ) from error


def _verdict(topic: str, state, seconds: float) -> tuple[str, bool]:
  """A sentence that says what is wrong, or "", and whether a process is silent."""
  told = []
  try:
    for process in range(state.num_processes):
      told.append(Told(*json.loads(_of(topic, process, state, seconds))))
  except RunError as error:
    return str(error), True
  return differences(told), False


def differences(told: Sequence[Told]) -> str:
  """A sentence that says why processes cannot run together; "" if they can."""
  for process, one in enumerate(told):
    if one.refusal:
      return f"Process {process} on host {one.host} does not start: {one.refusal}"
  differing = []
  for name in dict.fromkeys(name for one in told for name in one.facts):
    values = {one.facts.get(name) for one in told} - {UNKNOWN}
    if len(values) > 1:
      differing.append(name)
  if not differing:
    return ""
  words = "; ".join(f"{name} is {_values(name, told)}" for name in differing[:MOST])
  if len(differing) > MOST:
    words += f"; {len(differing) - MOST} more differ"
  return (
    f"The processes of this run are not alike: {words}. Give every host the same command, "
    "code, versions, variables and data, and start all of them again."
  )


def _values(name: str, told: Sequence[Told]) -> str:
  """The values of a fact, each with its processes."""
  processes = {}
  for process, one in enumerate(told):
    processes.setdefault(one.facts.get(name), []).append(process)
  words = []
  for value, who in processes.items():
    shown = "not there" if value is None else shortened(value)
    words.append(f"{shown} in {_named(who, told)}")
  return " and ".join(words)


def _named(processes: Sequence[int], told: Sequence[Told]) -> str:
  if len(processes) == 1:
    return f"process {processes[0]} ({told[processes[0]].host})"
  few = ", ".join(map(str, processes[:MOST]))
  if len(processes) > MOST:
    return f"processes {few} and more"
  return f"processes {few}"
