"""The main program with one thing going wrong: python -m tests.faults.driver FAULT FLAGS...

A FAULT is a name below and its argument, such as full:20-30, or several: full:20-30+gone:30. Each
replaces one function of the program by itself with the fault around it; everything else is what a
user runs.
"""

import functools
import inspect
import os
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
  from vit_jax.training.callbacks import Checkpointing

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

  from vit_jax.training.callbacks import Checkpointing

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


def calls(_):
  """No harm: ends once the first step was dispatched, with the files whose functions were called.

  Calls while a module is imported do not count.
  """
  import vit_jax

  package, found, watch = f"{vit_jax.__path__[0]}/", set(), sys.monitoring

  def begun(code, _):
    if not code.co_filename.startswith(package):
      return watch.DISABLE
    if code.co_name == "hold":
      print(*sorted(found), sep="\n", flush=True)
      os._exit(0)
    above = sys._getframe(1)
    while above and above.f_code.co_name != "<module>":
      above = above.f_back
    if code.co_flags & inspect.CO_OPTIMIZED and not (above and in_package(above)):
      found.add(code.co_filename)
      return watch.DISABLE
    return None

  def in_package(frame):
    return frame.f_code.co_filename.startswith(package)

  watch.use_tool_id(watch.PROFILER_ID, "calls")
  watch.register_callback(watch.PROFILER_ID, watch.events.PY_START, begun)
  watch.set_events(watch.PROFILER_ID, watch.events.PY_START)


def signal_in(place):
  """A signal in the middle of an evaluation or of a line: signal_in:evaluation-SIGHUP."""
  from vit_jax.evaluation import classification
  from vit_jax.storage import metrics_log

  place, _, kind = place.partition("-")
  signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whoever started the tests may ignore it
  module, name = {
    "evaluation": (classification, "evaluate"),
    "line": (metrics_log.Writer, "write"),
  }[place]
  function = getattr(module, name)

  @functools.wraps(function)
  def signalled(*args, **kwargs):
    os.kill(os.getpid(), getattr(signal, kind or "SIGTERM"))
    return function(*args, **kwargs)

  setattr(module, name, signalled)


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


def miscomputes(step):
  """The last device gets a wrong parameter in the second computation of a step."""
  import itertools

  import jax
  import numpy as np

  from tests import miscomputing
  from vit_jax.learning import train_step

  jit_step = train_step.jit_step

  def faulty(*args, **kwargs):
    update, computations = jit_step(*args, **kwargs), itertools.count()

    def computed(state, batch):
      state, metrics = update(state, batch)
      if next(computations) == int(step) + 1:  # the first step is computed twice too
        rng = np.random.default_rng(0)
        state = miscomputing.with_wrong_parameter(state, jax.devices()[-1], rng)
      return state, metrics

    return computed

  train_step.jit_step = faulty


FAULTS = dict(
  miscomputes=miscomputes,
  full=full,
  gone=gone,
  witnessed=witnessed,
  calls=calls,
  signal_in=signal_in,
  halted_input=halted_input,
  endless_compilation=endless_compilation,
)


def run():
  """Does the harm that the first argument names, then runs the main program with the others."""
  for fault in sys.argv.pop(1).split("+"):
    name, _, argument = fault.partition(":")
    FAULTS[name](argument)

  from vit_jax import main

  main.run()


if __name__ == "__main__":
  run()
