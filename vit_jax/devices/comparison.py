"""Whether all processes of a run run the same, asked before they compute together.

They tell one another by the store of JAX's coordinator, which needs no device: a computation that
processes share may stall, or go on with wrong numbers, where they differ.
"""

import contextlib
import json
import socket
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import jax
from jax._src import distributed  # JAX has no public way to the store of its coordinator

from vit_jax.process.errors import ConfigError, RunError
from vit_jax.process.text import shortened

UNKNOWN = "not known"  # a fact that is not compared
MOST = 4  # differences in a message
LONGEST = 10.0**6  # seconds to wait, if the watchdog has no limit
SLACK = 60  # seconds in which the first process tells what it waited for in vain


class Told(NamedTuple):
  """What a process tells the others.

  Attributes:
    host: its machine.
    refusal: why it ends; "": it goes on.
    facts: what must be the same in all processes.
  """

  host: str
  refusal: str
  facts: Mapping[str, str]


def compare(topic: str, facts: Mapping[str, str], *, seconds: float = 0, refusal: str = ""):
  """Checks that all processes tell the same facts; each of them calls it, or is waited for.

  Args:
    topic: a word for these facts; each is compared once.
    facts: values by name, as a message gives them.
    seconds: to wait for the other processes; 0: without a limit.
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
  """If this process is refused inside, the others end too when they compare these facts.

  The arguments are those of `compare`.
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
    raise RunError(
      f"Process {0 if whose == 'verdict' else whose} has not answered within {seconds:g} s "
      "(config.stall_seconds); see what it prints, and start the same command again on all hosts."
    ) from error


def _verdict(topic: str, state, seconds: float) -> tuple[str, bool]:
  """What is wrong, as a sentence, or "", and whether it is that a process is silent."""
  told = []
  try:
    for process in range(state.num_processes):
      told.append(Told(*json.loads(_of(topic, process, state, seconds))))
  except RunError as error:
    return str(error), True
  return differences(told), False


def differences(told: Sequence[Told]) -> str:
  """What keeps processes from running together, as a sentence; "" if nothing does."""
  refused = [(i, one) for i, one in enumerate(told) if one.refusal]
  if refused:
    process, one = refused[0]
    return f"Process {process} on host {one.host} does not start: {one.refusal}"
  names = dict.fromkeys(name for one in told for name in one.facts)
  values = lambda name: {one.facts.get(name) for one in told} - {UNKNOWN}
  differing = [name for name in names if len(values(name)) > 1]
  if not differing:
    return ""
  words = "; ".join(f"{name} is {_values(name, told)}" for name in differing[:MOST])
  more = f"; {len(differing) - MOST} more differ" if len(differing) > MOST else ""
  return (
    f"The processes of this run are not alike: {words}{more}. Give every host the same command, "
    "code, versions, variables and data, and start all of them again."
  )


def _values(name: str, told: Sequence[Told]) -> str:
  """The values of a fact, each with its processes."""
  processes = {}
  for process, one in enumerate(told):
    processes.setdefault(one.facts.get(name), []).append(process)
  return " and ".join(
    f"{'not there' if value is None else shortened(value)} in {_named(who, told)}"
    for value, who in processes.items()
  )


def _named(processes: Sequence[int], told: Sequence[Told]) -> str:
  if len(processes) == 1:
    return f"process {processes[0]} ({told[processes[0]].host})"
  few = ", ".join(map(str, processes[:MOST]))
  return f"processes {few}" if len(processes) <= MOST else f"processes {few} and more"
