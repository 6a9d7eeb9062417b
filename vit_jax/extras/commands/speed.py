"""Measures inference and training images/s and the largest batch that fits (Figure 12).

vit-jax speed [--model NAME ...] [--image-size N ...]        on the device at hand
vit-jax speed --topology=v3:2x2 [--model NAME ...] [...]     by the compiler of TPUs

Each model is tried at each image size with batches that double until one does not fit. If the
patches of a model do not tile an image size, it gets the largest size below that they do.
inference: the logits of a batch. training: a step of the pre-training on JFT-300M, with its head
of 18,291 classes. Batches and images/s are those of one device, in bfloat16.

Every batch is tried in a process of its own. On a CPU it is in float32, and --memory says how much
a program may use. Run nothing else at the same time. With --topology nothing runs: the real
compiler says what fits, and images/s are an estimate from the cycles that it counts. This needs the
package libtpu, but no TPU.

WORKDIR gets results.csv (a row for each batch that was tried), results.md, figure.svg and
figure.png. If the command was stopped, start it again: it continues, and tries nothing twice.
Models and sizes that you add are measured, and those that are there stay.

Exit status: 0 done; 2 wrong usage; 1 a trial failed for another reason than memory, or anything
else.
"""

import dataclasses
import functools
import multiprocessing
import pathlib
import signal
from argparse import Namespace

from vit_jax.config import ConfigError, RunError
from vit_jax.config.tool_flags import ToolFlags, ending, path, whole
from vit_jax.extras.compiled import absent
from vit_jax.process import text
from vit_jax.process.text import command

MODELS = ("ViT-B/32", "ViT-B/16", "ViT-L/32", "ViT-L/16", "ViT-H/14", "R50x1", "R50x2", "R152x2")
SIDES = (64, 128, 224, 384, 512)  # pixels
MEMORY = 4  # GiB, on a CPU
# The first batch that is tried.
FIRST = 32
FIRST_ON_CPU = 1


def flags() -> ToolFlags:
  """The command line."""
  result = ToolFlags("speed", __doc__)
  add = result.add_argument
  add(
    "--model",
    nargs="+",
    metavar="NAME",
    default=MODELS,
    help="default: eight of Table 6",
  )
  add(
    "--image-size",
    nargs="+",
    type=whole(1, 10_000),
    metavar="N",
    default=SIDES,
    help="sides of the images, pixels (default: 64 128 224 384 512)",
  )
  where = result.add_mutually_exclusive_group()
  where.add_argument("--topology", help="a slice of TPUs, KIND:AxB or KIND:AxBxC chips")
  where.add_argument(
    "--memory",
    type=whole(1, 10**6),
    default=MEMORY,
    metavar="GIB",
    help=f"memory of a program on a CPU (default: {MEMORY}); other devices have their own",
  )
  add("--workdir", type=path, help="default: workdirs/speed, or workdirs/speed-TOPOLOGY")
  result.add_format("table", "json")
  return result


def by_compiler(topology: str, folder: pathlib.Path):
  """The survey of a slice that you do not have, and the origin of its numbers."""
  from vit_jax.extras.benchmarks import trial
  from vit_jax.extras.benchmarks.survey import Survey
  from vit_jax.extras.compiled import gpus, platforms

  signal.signal(signal.SIGINT, signal.SIG_DFL)  # Python's own would wait for the compiler
  if gpus.names(topology):
    raise ConfigError(
      f"--topology={topology}: speed comes from the cycles that the TPU compiler counts, and the "
      "one for GPUs counts none; vit-jax compile-check tells a bound."
    )
  devices = platforms.devices_of(topology)
  name = f"{topology} ({len(devices)} x {devices[0].device_kind}), by its compiler"
  origin = f"{name}: nothing was run, and images/s are an estimate from the cycles that it counts."
  estimate = functools.partial(trial.estimated, devices=devices)
  return Survey(folder, name, FIRST, estimate), origin


def at_hand(memory: int, folder: pathlib.Path):
  """The survey of the devices of this machine, and the origin of its numbers.

  Raises:
    RunError: there is no device that can be used.
  """
  from vit_jax.extras.benchmarks import trial
  from vit_jax.extras.benchmarks.processes import in_process
  from vit_jax.extras.benchmarks.survey import Survey

  context = multiprocessing.get_context("spawn")
  device = in_process(context, trial.device)
  if "error" in device:
    raise RunError(f"The device cannot be used: {device['error']}.")
  on_cpu = device["platform"] == "cpu"
  name = f"{device['count']} x {device['kind']}" + f", {memory} GiB" * on_cpu
  first = FIRST_ON_CPU if on_cpu else FIRST

  def run(case, batch):
    return in_process(context, trial.measured, case, batch, memory * 2**30)

  return Survey(folder, name, first, run), f"Measured on {name}."


def measure(args: Namespace):
  """Measures what is missing, prints the table and writes the results.

  Raises:
    ConfigError, RunError: a name or a size is wrong, or a trial failed.
  """
  from vit_jax.extras.benchmarks import case, results

  cases = case.cases(args.model, args.image_size)
  name = "speed"
  if args.topology:
    name += f"-{args.topology.replace(':', '-')}"
  folder = args.workdir or pathlib.Path("workdirs") / name
  if args.topology:
    survey, origin = by_compiler(args.topology, folder)
  else:
    survey, origin = at_hand(args.memory, folder)
  failed = survey.do(cases)
  trials = survey.trials()
  if trials:
    again = [command(["vit-jax", "speed", *words]) for words in asked(args, trials)]
    results.write(folder, trials, origin, "\n".join(again))
  lines = results.lines(trials)
  if args.format == "json":
    print(text.json_text([dataclasses.asdict(line) for line in lines]))
  else:
    print(results.table(lines))
  if failed:
    more = ""
    if len(failed) > 1:
      more = f" {len(failed) - 1} more failed."
    raise RunError(f"{failed[0]}{more} Start the same command again to try what is missing.")


def asked(args: Namespace, trials: list[dict[str, str]]) -> list[list[str]]:
  """The words of commands for what was tried, also by earlier commands.

  A command measures all its models at all its sizes, so models of other sizes have their own.
  """
  sides = {}
  for row in trials:
    sides.setdefault(row["model"], set()).add(int(row["image_size"]))
  together = {}
  for model, of_model in sides.items():
    together.setdefault(tuple(sorted(of_model)), []).append(model)
  where = f"--topology={args.topology}" if args.topology else f"--memory={args.memory}"
  commands = []
  for of_models, models in together.items():
    words = [where, "--model", *models, "--image-size", *map(str, of_models)]
    if args.workdir:
      words.append(f"--workdir={args.workdir}")
    commands.append(words)
  return commands


def main(arguments: list[str] | None = None):
  """Measures; see the exit status above.

  Args:
    arguments: the command line without the program's name; None: this process's own.
  """
  args = flags().parse_args(arguments)
  if args.topology:
    absent.prepare()
  with ending("speed"):
    measure(args)
