"""Does a study: many runs, one table, one figure (configs/studies/NAME.py).

python tools/study.py --study=configs/studies/positions.py --plan
python tools/study.py --study=configs/studies/positions.py [--scale=small|paper] [--jobs=N]

A study compares cells, each with several seeds. --plan prints runs, steps, images, FLOPs and the
time on this machine, from steps that it times for about a minute, and starts nothing; with
--scale=paper it times nothing, and prints device-days of a TPU. Without it the runs that are
missing are done. Runs that cells share, such as one pre-training of many fine-tunings, are done
once. If the command was stopped, start it again: it continues, and does nothing twice. A run that
fails costs no other. What a run prints is in WORKDIR/runs/NAME.log.

WORKDIR gets results.csv (one row a cell and seed), results.md (mean, standard deviation, seeds, the
paper's figures), figure.svg and figure.png. --config.KEY=VALUE goes to every run, such as the data
of the paper's scale.

On a cluster, --slurm FILE writes a script: bash FILE [options of sbatch, such as --gres=gpu:1].

Exit status: 0 done; 2 wrong usage or config; 75 stopped by a signal: start it again; 1 a run
failed, or anything else.
"""

import dataclasses
import pathlib
import shlex
import sys
from argparse import Namespace

from vit_jax.config.tool_ending import ending
from vit_jax.config.tool_flags import ToolFlags, path, whole
from vit_jax.experiments import runs
from vit_jax.experiments.studies import jobs, loading, plan, report, runner, slurm
from vit_jax.experiments.studies.runner import StudyRunner
from vit_jax.experiments.studies.store import RunStore
from vit_jax.process import console, json_text


def flags() -> ToolFlags:
  """The command line."""
  result = ToolFlags("study", __doc__)
  add = result.add_argument
  add("--study", required=True, metavar="FILE", help="configs/studies/NAME.py")
  add("--scale", choices=loading.SCALES, default="small", help="default: small")
  add("--seeds", type=whole(1, 1000), help="seeds of every cell (default: the study's)")
  add("--jobs", type=whole(1, 1000), default=1, help="runs at the same time (default: 1)")
  add("--workdir", type=path, help="default: workdirs/study-NAME-SCALE")
  how = result.add_mutually_exclusive_group()
  how.add_argument("--plan", action="store_true", help="print what it costs, and start nothing")
  how.add_argument("--only", metavar="LABEL", help="one cell, or one run as WAVE:NUMBER")
  how.add_argument("--slurm", type=path, metavar="FILE", help="write a script for SLURM")
  result.add_settings()
  result.add_format("table", "json")
  return result


def asked(args: Namespace, overrides: list[str]) -> StudyRunner:
  """The study of a command line.

  Raises:
    ConfigError: the study is wrong.
  """
  study = loading.load(args.study, args.scale)
  study = dataclasses.replace(study, seeds=args.seeds or study.seeds)
  name = f"study-{pathlib.Path(args.study).stem}-{args.scale}"
  folder = args.workdir or pathlib.Path("workdirs") / name
  return StudyRunner(
    study, RunStore(folder, tuple(overrides)), shlex.join(command(args, overrides))
  )


def command(args: Namespace, overrides: list[str]) -> list[str]:
  """The command that does the whole study."""
  words = ["python", "tools/study.py", f"--study={args.study}", f"--scale={args.scale}"]
  words += [f"--seeds={args.seeds}"] * bool(args.seeds)
  return [*words, *([f"--workdir={args.workdir}"] if args.workdir else []), *overrides]


def do(chosen: StudyRunner, args: Namespace):
  """Does what is missing, and prints and writes the results.

  Raises:
    ConfigError, RunError, Stopped: as `execution.execute`.
  """
  costs = runs.in_new_process(chosen.checked_costs, data=True)
  failed = chosen.run(chosen.asked_jobs(args.only), costs, jobs=args.jobs)
  if not runner.is_one_run(args.only):  # the last job of a cluster writes the results
    lines = chosen.results(costs)
    show = [dataclasses.asdict(line) for line in lines]
    print(json_text.written(show) if args.format == "json" else report.table(lines))
    print(f"Results: {chosen.store.folder / report.PAGE}", file=sys.stderr)
  runner.raise_failures(failed)


def main(arguments: list[str] | None = None):
  """Does the study; see the exit status above.

  Args:
    arguments: the command line without the program's name; None: this process's own.
  """
  args, overrides = flags().parse_with_settings(arguments)
  with ending("study"):
    chosen = asked(args, overrides)
    if args.plan:
      print(plan.text(chosen, args.format, measure=args.scale == "small"))
    elif args.slurm:
      runs.in_new_process(chosen.checked_costs)
      program = [sys.executable, str(pathlib.Path(__file__).resolve())]
      program += command(args, overrides)[2:]
      slurm.write(args.slurm, program, jobs.waves(jobs.of_study(chosen.study)))
    else:
      do(chosen, args)


if __name__ == "__main__":
  console.of_tool()
  main()
