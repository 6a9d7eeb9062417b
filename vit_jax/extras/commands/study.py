"""Runs a study: many runs, one table, one picture (configs/studies/NAME.py).

vit-jax study --study=configs/studies/positions.py --plan
vit-jax study --study=configs/studies/positions.py [--scale=small|paper] [--jobs=N]
vit-jax study all [--scale=small|paper] [--jobs=N]
vit-jax study --stale [--mark=docs/results.md]

A study compares cells, each with several seeds. --plan prints runs, steps, images, FLOPs and the
time on this machine, from steps that it times for about a minute, and starts nothing; with
--scale=paper it times nothing, and prints device-days of a TPU. Without --plan the command does the
runs that are missing. Runs that cells share, such as one pre-training before many fine-tunings, are
done once. If the command was stopped, start it again: it continues, and does nothing twice. A
failed run does not affect the others. `all` does every study of configs/studies, the one that took
longest first. What a run prints is in WORKDIR/runs/NAME.log.

--stale lists the studies that have changed since the numbers in docs/images/studies, or whose code
(data, evaluation, learning, models, objective, fitting of weights) has; --mark also marks them on a
page.

WORKDIR gets results.csv (one row for each cell and seed), results.md (mean, standard deviation,
seeds, the paper's numbers), figure.svg and figure.png, and trials.csv (one row for each candidate)
if settings are chosen. --config.KEY=VALUE goes to every run, such as the data of the paper's scale.

On a cluster, --slurm FILE writes a script that submits all runs: bash FILE [options of sbatch, such
as --gres=gpu:1 --time=4:00:00]. --commands prints the commands of the runs that can start now, one
per line: first the trials; when they are done, the runs with the chosen settings.

Exit status: 0 done; 2 wrong usage or config; 75 stopped by a signal: start it again; 1 a run
failed, or anything else.
"""

import dataclasses
import pathlib
import sys
from argparse import Namespace

from vit_jax.config import ConfigError, RunError, Stopped
from vit_jax.config.tool_flags import ToolFlags, ending, path, whole
from vit_jax.extras.experiments.studies import command, loading, stale
from vit_jax.process.text import json_text


def flags() -> ToolFlags:
  """The command line."""
  result = ToolFlags("study", __doc__)
  add = result.add_argument
  which = result.add_mutually_exclusive_group(required=True)
  which.add_argument("--study", metavar="FILE", help="configs/studies/NAME.py")
  which.add_argument("every", nargs="?", choices=["all"], help="all studies of configs/studies")
  which.add_argument("--stale", action="store_true", help="list the studies that have changed")
  add("--mark", type=path, metavar="PAGE", help="with --stale: mark these studies on a page")
  add("--scale", choices=loading.SCALES, default="small", help="default: small")
  add("--seeds", type=whole(1, 1000), help="seeds of every cell (default: the study's)")
  command.add_flags(result, workdir="workdirs/study-NAME-SCALE")
  return result


def main(arguments: list[str] | None = None):
  """Does the study; see the exit status above.

  Args:
    arguments: the command line without the program's name; None: this process's own.
  """
  args, overrides = flags().parse_with_settings(arguments)
  with ending("study"):
    if args.mark and not args.stale:
      raise ConfigError("--mark is for --stale; add it.")
    if args.stale:
      show_stale(args)
    elif args.every:
      do_every(args, overrides)
    else:
      do(args, overrides)


def show_stale(args: Namespace):
  """Prints the studies that have changed since their numbers, and marks them on a page."""
  found = stale.stale(args.scale)
  print(json_text(found) if args.format == "json" else stale.text(found))
  if args.mark:
    stale.mark(args.mark, found)


def do_every(args: Namespace, overrides: list[str]):
  """Does all studies, the longest first; one that fails does not keep the others from running.

  Raises:
    ConfigError: a flag is for one study.
    RunError: a study failed.
    Stopped: a signal came.
  """
  if args.workdir or args.only or args.slurm:
    raise ConfigError("--workdir, --only and --slurm are for one study; name it with --study=FILE.")
  failed = []
  names = sorted(stale.names(args.scale), key=stale.seconds, reverse=True)
  for name in names:
    print(f"--- {name}", file=sys.stderr, flush=True)
    one = Namespace(**vars(args) | {"study": str(stale.STUDIES / f"{name}.py"), "every": None})
    try:
      do(one, overrides)
    except Stopped:
      raise
    except (ConfigError, RunError) as error:
      failed.append(f"{name}: {error}")
      print(failed[-1], file=sys.stderr, flush=True)
  if failed:
    raise RunError(f"{len(failed)} of {len(names)} studies failed: {' '.join(failed)}")


def do(args: Namespace, overrides: list[str]):
  """Does one study."""
  study = loading.load(args.study, args.scale)
  command.conduct(
    dataclasses.replace(study, seeds=args.seeds or study.seeds),
    f"study-{pathlib.Path(args.study).stem}-{args.scale}",
    args,
    command.words("study", args, overrides),
    overrides=overrides,
    measure=args.scale == "small",
  )
