"""Computes steps twice, to find devices that compute wrongly without an error.

A step is a pure function of state and batch, so two computations must give the same bits. Both are
dispatches of the program that computes every other step: the compiler cannot merge them, and the
run has the same bits as without verification. That program overwrites its state, so the first
computation gets a copy, and a verified step needs memory for a second state.
"""

import contextlib
import functools
import json
import socket
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

from vit_jax.config import ConfigError
from vit_jax.devices import mesh as meshes
from vit_jax.extras.verification import checksums
from vit_jax.learning import optim, train_step
from vit_jax.learning.train_step import TrainState
from vit_jax.process import agreement, program
from vit_jax.process.errors import Miscomputed
from vit_jax.process.text import one_line
from vit_jax.storage import files
from vit_jax.storage.tree import name_of
from vit_jax.training.callbacks import Session
from vit_jax.training.loop import Callback
from vit_jax.training.run import Run
from vit_jax.training.steps import due
from vit_jax.weights import safetensors

FOLDER = "miscomputed"
BLOCKS = 8  # blocks of images that the search tries
TRIES = 2  # how often each device computes each block


class Verification(Callback):
  """Verifies every `config.verify_every`-th step by computing it twice."""

  @classmethod
  def check(cls, config, device):
    """Refuses to verify on GPUs whose kernels may give other bits each time.

    Raises:
      ConfigError: the compiler's flag for deterministic kernels is missing.
    """
    on_gpu = device.platform == "gpu"
    if on_gpu and not program.same_bits_on_gpus():
      raise ConfigError(
        f"config.verify_every={config.verify_every} needs "
        "XLA_FLAGS=--xla_gpu_exclude_nondeterministic_ops=true on GPUs: without it their kernels "
        "may give other bits each time, which would be taken for a fault. Set it, or "
        "config.verify_every=0."
      )

  @classmethod
  def copies_of_state(cls, config):
    """One: the first computation gets a copy, because it overwrites its state."""
    return 1

  def update(self, update):
    """The update, verified at some steps."""
    return Verified(self._run, self._session, update)


class Result(NamedTuple):
  """The result of one computation of a step."""

  state: object
  metrics: dict[str, jax.Array]


class Verified:
  """An update, (state, batch) -> (state, metrics), that computes some steps twice.

  These are the first step of each start and every `config.verify_every`-th step. Both results and
  all replicas of each array must have the same bits.
  """

  def __init__(self, run: Run, session: Session, update: Callable):
    self._run = run
    self._session = session
    self._update = update
    self._step = run.resume_point.step
    self._last: int | None = None  # step that was verified last
    shardings = jax.tree.map(lambda x: x.sharding, run.abstract)

    def copied(state):
      return jax.tree.map(jnp.copy, state)

    self._copy = jax.jit(copied, out_shardings=shardings)
    specs = jax.tree.map(lambda x: x.spec, shardings)
    self._sums = checksums.by_device(run.mesh, Result(specs, P()))

  def __call__(self, state, batch):
    """The state and metrics after the next step.

    Raises:
      Miscomputed: the two computations, or the replicas of an array, differ.
    """
    self._step += 1
    if self._last is None or due(self._step, self._run.config.verify_every):
      return self._twice(state, batch)
    return self._update(state, batch)

  def _twice(self, state, batch):
    jax.block_until_ready(state)  # so that earlier steps are not timed as verification
    with self._timed():
      first = Result(*self._update(self._copy(state), batch))
      sums = [jax.device_get(self._sums(first))]
    second = Result(*self._update(state, batch))
    self._session.monitor.dispatched(second.metrics)
    jax.block_until_ready(second)
    with self._timed():
      sums.append(jax.device_get(self._sums(second)))
      self._compare(np.stack(sums), (first, second), batch)
    self._last = self._step
    return second

  def _timed(self) -> contextlib.AbstractContextManager:
    """Counts the time inside as verification; the loop counts the first step as compilation."""
    if self._last is None:
      return contextlib.nullcontext()
    return self._session.monitor.paused("verification")

  def _compare(self, table, results, batch):
    """Ends the run if not all bits are the same; every process has the same table."""
    names, first = described(results[0], self._run.mesh)
    wrong = checksums.differing(table, first)
    if not wrong.any():
      if self._last is None:
        self._session.writer.say(
          f"Step {self._step} was computed twice (config.verify_every), with the same bits on "
          f"{self._run.mesh.size} device(s)."
        )
      return
    with jax.transfer_guard("allow"):
      kept = self._keep(table, results, wrong)
      where = "on some devices"
      if (table[0] != table[1]).any():
        where = "in the second result"
      what = (
        f"Step {self._step}, computed twice from the same state and batch: "
        f"{wrong.sum()} of {len(names)} arrays, the first of them {names[wrong.argmax()]}, have "
        f"other bits {where}. "
      )
      named = self._outvoted(table, first, len(jax.tree.leaves(results[0].state)))
      who = self._who(named, results, batch)
    raise Miscomputed(f"{what}{who} {kept} {self._advice()}")

  def _outvoted(self, table, first, count):
    """Devices outvoted in the `count` arrays of the state, or else in the metrics.

    Devices that share a copy of the parameters sum up their norm together, so all of them get it
    wrong.
    """
    of_state = checksums.outvoted(table[:, :count], first[:count])
    if of_state.any():
      return of_state
    return checksums.outvoted(table, first)

  def _who(self, named, results, batch) -> str:
    """A sentence that names the devices that computed wrongly, if they can be found."""
    devices = self._run.mesh.devices.ravel()
    named = named | (len(devices) == 1)
    if named.any():
      return f"Wrong: {in_words(devices[named])}."
    for x in jax.tree.leaves(results[0]):
      x.delete()  # to make room
    tried = "gradients of small batches, which each device computed alone"
    shared = "No majority of replicas tells which device was wrong."
    try:
      named = search(self._run, results[1].state, batch)
    except jax.errors.JaxRuntimeError as error:
      return f"{shared} They could not be tried alone ({one_line(str(error))[:200]})."
    if named.any():
      return f"{shared} Wrong in the {tried}: {in_words(devices[named])}."
    return f"{shared} It is not known: the {tried}, were the same on all."

  def _advice(self) -> str:
    last = "No step of this start was verified before."
    if self._last is not None:
      last = f"Checkpoints after step {self._last}, the last that was verified, may be wrong too."
    return (
      f"Nothing of this step was saved. {last} Replace the device or its machine, and start the "
      "same command again."
    )

  def _keep(self, table, results, wrong) -> str:
    """Writes the differing arrays of both results, each process its share; says where they are."""
    folder = self._session.folder / FOLDER / str(self._step) / f"process-{jax.process_index()}"
    names, first = described(results[0], self._run.mesh)
    sums = {names[i]: table[:, i].tolist() for i in np.flatnonzero(wrong)}
    try:
      place = files.place_to_fill(folder)
      files.make_folder(place)
      files.write_text(place / "checksums.json", json.dumps(sums))
      arrays = distinct(table, results, wrong, first, list(self._run.mesh.devices.flat))
      safetensors.save_arrays(place / "values.safetensors", arrays, {})
      files.bring(place, folder)
    except OSError as error:
      return f"The results could not be written ({one_line(str(error))})."
    return f"What differs is in {folder.parent}."


def described(result: Result, mesh: jax.sharding.Mesh) -> tuple[list[str], np.ndarray]:
  """The name of every array of a result, and the first holder of each device's share of it."""
  named = [(name_of(path), x) for path, x in jax.tree_util.tree_leaves_with_path(result)]
  first = [meshes.holders(mesh, x.sharding.spec) for _, x in named]
  return [name for name, _ in named], np.stack(first)


def distinct(table, results, wrong, first, devices) -> dict[str, np.ndarray]:
  """The differing arrays of this process, each value once: from the first device that holds it.

  Returns:
    {"first/NAME/device-ID" or "second/...": the device's share}
  """
  found = {}
  for number, (word, result) in enumerate(zip(("first", "second"), results, strict=True)):
    leaves = jax.tree_util.tree_leaves_with_path(result)
    for i in np.flatnonzero(wrong):
      for shard in leaves[i][1].addressable_shards:
        device = devices.index(shard.device)
        same = (first[i] == first[i, device]) & (table[:, i] == table[number, i, device])
        if tuple(np.argwhere(same)[0]) == (number, device):
          name = f"{word}/{name_of(leaves[i][0])}/device-{shard.device.id}"
          found[name] = np.asarray(shard.data)
  return found


def search(run: Run, state: TrainState, batch) -> np.ndarray:
  """Which devices compute other gradients than most, each alone on the same images.

  Args:
    run: the run.
    state: after the step.
    batch: a batch of the run; several blocks of it are tried, each several times.

  Returns:
    (devices,) bool, in the order of the mesh.

  Raises:
    JaxRuntimeError: a device lacks memory, for example: each holds all parameters and gradients.
  """
  rows = run.config.batch_size // (run.config.parts * meshes.groups(run.mesh))
  compute = alone(run, rows)
  found = np.zeros(run.mesh.size, bool)
  for block in range(min(BLOCKS, run.config.batch_size // rows)):
    tries = [jax.device_get(compute(state, batch, block * rows)) for _ in range(TRIES)]
    found |= checksums.minority(np.stack(tries))
  return found


def alone(run: Run, rows: int):
  """The function (state, batch, begin) -> (devices,): checksums of each device's own gradients.

  Every device computes loss and gradients of the same rows of the batch, without the others.
  """
  trained = functools.partial(optim.partition, pattern=run.trainable)

  def of_device(params, extra, examples):
    key = jax.random.key(run.config.seed)
    prepared = run.objective.prepare(examples, key)
    sums = train_step.loss_and_grads(run.objective, params, extra, trained(params), prepared, key)
    return checksums.checksum(checksums.of_tree(sums))[None]

  def of_devices(state, batch, begin):
    examples = jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, begin, rows), batch)
    split = P(run.mesh.axis_names)
    mapped = jax.shard_map(
      of_device, mesh=run.mesh, in_specs=(P(), P(), P()), out_specs=split, check_vma=False
    )
    course = run.steps.course
    progress = train_step.progress_at(course.at(state.step), course.total)
    extra = train_step.extra_seen(run.objective, state, progress)
    return mapped(state.params, extra, examples)

  return jax.jit(of_devices, out_shardings=meshes.replicated(run.mesh))


def in_words(devices) -> str:
  """The devices with their processes and hosts; every process must call it."""
  hosts = agreement.allgather_str(socket.gethostname())
  words = []
  for device in devices:
    kind = device.device_kind
    if hasattr(device, "coords"):
      kind += f" at {device.coords}"
    process = device.process_index
    words.append(f"device {device.id} ({kind}) of process {process} on host {hosts[process]}")
  return ", ".join(words)
