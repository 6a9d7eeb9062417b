"""The command line of the tools that do many runs, and what they do with a study."""

import dataclasses
import pathlib
import shlex
import sys
from argparse import Namespace
from collections.abc import Callable

from vit_jax.config import RunError
from vit_jax.config.tool_flags import ToolFlags, anywhere, file, path, plugins_in, whole
from vit_jax.extras.experiments import runs
from vit_jax.extras.experiments.studies import execution, jobs, plan, report, runner, slurm
from vit_jax.extras.experiments.studies.runner import StudyRunner
from vit_jax.extras.experiments.studies.store import RunStore
from vit_jax.extras.experiments.studies.study import Study
from vit_jax.process import text

HOW = ("plan", "commands", "slurm", "only", "jobs", "format")  # flags for a single start


def add_flags(flags: ToolFlags, *, workdir: str):
  """Adds the flags that all tools share; `workdir` says which folder is the default."""
  add = flags.add_argument
  add("--jobs", type=whole(1, 1000), default=1, help="runs at the same time (default: 1)")
  add("--workdir", type=anywhere, help=f"also gs://... or s3://...; default: {workdir}")
  how = flags.add_mutually_exclusive_group()
  how.add_argument("--plan", action="store_true", help="print what it costs, and start nothing")
  how.add_argument("--only", metavar="LABEL", help="one cell, or one run as WAVE:NUMBER")
  how.add_argument("--slurm", type=path, metavar="FILE", help="write a script for SLURM")
  commands = "print the commands of the runs that can start now, and start none"
  how.add_argument("--commands", action="store_true", help=commands)
  flags.add_settings()
  flags.add_format("table", "json")


def words(tool: str, args: Namespace, overrides: list[str]) -> list[str]:
  """The command that does the whole study."""
  flags = []
  for key, value in vars(args).items():
    if not value or key in HOW:
      continue
    flag = f"--{key.replace('_', '-')}"
    if value is not True:
      flag += f"={value}"
    flags.append(flag)
  return ["vit-jax", tool, *flags, *overrides]


def conduct(
  study: Study,
  folder: str,
  args: Namespace,
  command: list[str],
  *,
  overrides: list[str] = (),
  measure: bool = True,
  check_data: Callable[[], None] | None = None,
):
  """Does what the command line asks for: a plan, commands, a script, or the runs that are missing.

  Args:
    study: what is compared.
    folder: the default of --workdir, below workdirs.
    args: has the flags of `add_flags`.
    command: does the whole study.
    overrides: --config.KEY=VALUE for every run.
    measure: whether the plan times steps on this machine.
    check_data: checks the data in place of the checks for all studies.

  Raises:
    ConfigError: the study is wrong, or data is missing.
    RunError: the runs of --commands would start from a run that still trains.
    RunError, Stopped: as `execution.execute`.
  """
  store = RunStore(args.workdir or pathlib.Path("workdirs") / folder, tuple(overrides))
  study_runner = StudyRunner(study, store, shlex.join(command))
  plugins = plugins_in(command)
  if args.plan:
    print(plan.text(study_runner, args.format, plugins=plugins, measure=measure))
  elif args.slurm:
    file(args.slurm, "--slurm")
    runs.in_new_process(study_runner.checked_costs, plugins=plugins)
    program = [sys.executable, "-m", "vit_jax.extras.commands.main", *command[1:]]
    slurm.write(args.slurm, program, jobs.waves(jobs.of_study(study)))
  else:
    costs = runs.in_new_process(checked_costs, study_runner, check_data, plugins=plugins)
    if args.commands:
      for run in execution.startable(store, jobs.of_study(study), set()):
        if failure := execution.still_trains(execution.sources(run)):
          raise RunError(failure)
        print(run.command())
    else:
      do(study_runner, costs, args)


def checked_costs(study_runner: StudyRunner, check_data: Callable[[], None] | None) -> dict:
  """The costs of a study whose data is checked, for a process of its own; raises as `conduct`."""
  costs = study_runner.checked_costs(data=check_data is None)
  if check_data:
    check_data()
  return costs


def do(study_runner: StudyRunner, costs: dict, args: Namespace):
  """Does what is missing, writes the results and prints them.

  Raises:
    RunError: a run failed; or as `execution.execute`.
  """
  failed = study_runner.run(study_runner.asked_jobs(args.only), costs, jobs=args.jobs)
  if not runner.is_one_run(args.only):  # the last job of a cluster writes the results
    rows = [dataclasses.asdict(line) for line in study_runner.results(costs)]
    folder = study_runner.store.folder
    if args.format == "json":
      print(text.json_text(rows))
    else:
      print(report.text(folder, study_runner.study))
    print(f"Results: {folder / report.PAGE}", file=sys.stderr)
  runner.raise_failures(failed)
