"""The main program with one thing going wrong: python -m tests.faults.driver FAULT FLAGS...

A FAULT is a name below and its argument, such as full:20. Each replaces one function of the program
by itself with the fault around it; everything else is what a user runs.
"""

import functools
import os
import random
import resource
import signal
import sys
import time


def full(steps):
  """The disk is full from the first of two saved steps to the second: full:20-30.

  Files can then be no larger than `FULL_AT` bytes, or than a third number: full:20-30-100.
  """
  from vit_jax.storage.saving import Checkpoints

  given = [int(number) for number in steps.split("-")]
  first, last, limit = given + [FULL_AT][len(given) - 2 :]
  signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # the write then fails with EFBIG
  save, (_, most) = Checkpoints.save, resource.getrlimit(resource.RLIMIT_FSIZE)

  def limited_save(checkpoints, state, meta, **options):
    full = first <= int(state.step) < last
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit if full else most, most))
    return save(checkpoints, state, meta, **options)

  Checkpoints.save = limited_save


FULL_AT = 2500  # bytes a file: less than an array file, and than the metrics of the whole run


def before_save(step, act):
  """Does something to the workdir just before a step is saved."""
  from vit_jax.training.checkpointing import Checkpointing

  save = Checkpointing.save

  def late(saver, state, **options):
    if int(state.step) == step:
      saver.session.checkpoints.wait()
      act(saver.session.folder)
    return save(saver, state, **options)

  Checkpointing.save = late


def gone(step):
  """The workdir is moved away before a step is saved."""
  before_save(int(step), lambda folder: folder.rename(f"{folder}-away"))


def witnessed(step):
  """No harm: before a step is saved, each process writes down its part of the state."""
  import jax
  import numpy as np

  from vit_jax.training.checkpointing import Checkpointing

  save = Checkpointing.save

  def witness(saver, state, **options):
    if int(state.step) == int(step):
      parts = {}
      for path, array in jax.tree_util.tree_leaves_with_path(state):
        for shard in array.addressable_shards:
          bounds = [
            axis.indices(size)[:2] for axis, size in zip(shard.index, array.shape, strict=True)
          ]
          parts[f"{jax.tree_util.keystr(path)}@{bounds}"] = np.asarray(shard.data)
      np.savez(saver.session.folder / f"held-by-{jax.process_index()}.npz", **parts)
    return save(saver, state, **options)

  Checkpointing.save = witness


def signal_in(place):
  """A signal in the middle of an evaluation or of a save: signal_in:evaluation-SIGHUP."""
  from vit_jax.evaluation import classification
  from vit_jax.storage import manifest

  place, _, kind = place.partition("-")
  module, name = {
    "evaluation": (classification, "evaluate"),
    "save": (manifest, "write"),
  }[place]
  function = getattr(module, name)

  @functools.wraps(function)
  def signalled(*args, **kwargs):
    os.kill(os.getpid(), getattr(signal, kind or "SIGTERM"))
    return function(*args, **kwargs)

  setattr(module, name, signalled)


def not_finite(step):
  """The loss and all gradients of one step are NaN."""
  import jax.numpy as jnp

  from vit_jax.learning import train_step

  make = train_step.make

  def poisoned(*args, **settings):
    update = make(*args, **settings)

    def one_step(state, batch):
      poison = jnp.where(state.step == int(step) - 1, jnp.nan, 1.0)
      return update(state, batch | {"mask": batch["mask"] * poison})

    return one_step

  train_step.make = poisoned


def halted_input(batch):
  """From one batch on, reading waits for ever."""
  from vit_jax.data.batches import Reader

  read = Reader.training

  def halting(*args, **settings):
    for number, found in enumerate(read(*args, **settings), start=1):
      if number == int(batch):
        time.sleep(3600)
      yield found

  Reader.training = halting


def endless_compilation(_):
  """The first step is compiled for ever, in C, as far as Python can tell."""
  import ctypes

  from vit_jax.learning import train_step

  def compiling(*_):
    print("compiling now", flush=True)
    while True:
      ctypes.CDLL(None).usleep(200_000)

  train_step.jit_step = lambda *_, **__: compiling


def clock(_):
  """The clock of the day jumps by up to a day, back and forth, each time it is looked at."""
  real, rng = time.time, random.Random(0)
  time.time = lambda: real() + rng.uniform(-86400, 86400)
  time.time_ns = lambda: int(time.time() * 1e9)


FAULTS = dict(
  full=full,
  gone=gone,
  witnessed=witnessed,
  signal_in=signal_in,
  not_finite=not_finite,
  halted_input=halted_input,
  endless_compilation=endless_compilation,
  clock=clock,
)


def run():
  """Does the harm that the first argument names, then runs the main program with the others."""
  name, _, argument = sys.argv.pop(1).partition(":")
  FAULTS[name](argument)

  from vit_jax import main

  main.run()


if __name__ == "__main__":
  run()
