"""Runs a study: many runs, one table, one picture (configs/studies/NAME.py).

vit-jax study --study=configs/studies/positions.py --plan
vit-jax study --study=configs/studies/positions.py [--scale=small|paper] [--jobs=N]

A study compares cells, each with several seeds. --plan prints runs, steps, images, FLOPs and the
time on this machine, from steps that it times for about a minute, and starts nothing; with
--scale=paper it times nothing, and prints device-days of a TPU. Without --plan the command does the
runs that are missing. Runs that cells share, such as one pre-training before many fine-tunings, are
done once. If the command was stopped, start it again: it continues, and does nothing twice. A
failed run does not affect the others. What a run prints is in WORKDIR/runs/NAME.log.

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

from vit_jax.config.tool_flags import ToolFlags, ending, whole
from vit_jax.extras.experiments.studies import command, loading


def flags() -> ToolFlags:
  """The command line."""
  result = ToolFlags("study", __doc__)
  add = result.add_argument
  add("--study", required=True, metavar="FILE", help="configs/studies/NAME.py")
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
    study = loading.load(args.study, args.scale)
    command.conduct(
      dataclasses.replace(study, seeds=args.seeds or study.seeds),
      f"study-{pathlib.Path(args.study).stem}-{args.scale}",
      args,
      command.words("study", args, overrides),
      overrides=overrides,
      measure=args.scale == "small",
    )
