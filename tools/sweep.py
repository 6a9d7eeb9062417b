"""Chooses a learning rate on a development part of the training set, then scores the test set once.

python tools/sweep.py --model ViT-B/16 --task cifar10 --source PATH
python tools/sweep.py --development RECIPE --final RECIPE --learning-rates 0.003,0.01 [--seeds 3]

The protocol is the paper's (Section 4.1, Appendix B.1.1). Each learning rate of the grid trains on
a part of the training set. The rate with the best development accuracy (the smallest of equally
good ones) then trains on the whole training set with three seeds, and these runs are scored on the
test set after their last step. --model and --task take configs/finetune.py and the task's grid of
Table 4. For other data write two recipes: --development trains on a part and scores the rest
(data.train.split="train[:90%]", evaluate={"development": ... "train[90%:]"}, or [:90%] and
[90%:] of a folder), --final trains on all and scores the test set.
--config.KEY=VALUE goes to every run.

--real scores ImageNet's ReaL labels too, and gives their mean and deviation. --hyperrule tries
configs/hyperrule.py beside the grid, as the paper does for ResNets: if it is the best on the
development part, the final runs use it.

--plan prints runs, steps, images, FLOPs and the time on this machine, from steps that it times for
about a minute, and starts nothing.

If the command was stopped, start it again: it continues, and does nothing twice. Learning rates and
seeds may be added. A run that fails costs no other. The tool prints the results and writes them to
sweep.csv and sweep.png in --workdir; what a run prints is in WORKDIR/runs/NAME.log.

On a cluster: --commands prints the commands of the runs that can start now, one a line: first the
grid; when that is done, the final runs. --slurm FILE writes a script that submits all runs: bash
FILE [options of sbatch, such as --gres=gpu:1 --time=4:00:00].

Exit status: 0 done; 2 wrong usage or config; 75 stopped by a signal: start it again; 1 a run
failed, or anything else.
"""

import pathlib
import sys
from argparse import Namespace

from vit_jax.config import ConfigError
from vit_jax.config.tool_ending import ending
from vit_jax.config.tool_flags import ToolFlags, path, whole
from vit_jax.experiments import runs, sweep
from vit_jax.experiments.studies import execution, jobs, plan, runner, slurm, transfer
from vit_jax.experiments.studies.runner import StudyRunner
from vit_jax.experiments.studies.store import RunStore
from vit_jax.experiments.sweep import Sweep
from vit_jax.main import default_workdir
from vit_jax.process import console, json_text
from vit_jax.recipes import TASKS
from vit_jax.storage import workdir

FINE_TUNING, REAL = "configs/finetune.py", ",real"


def flags() -> ToolFlags:
  """The command line."""
  result = ToolFlags("sweep", __doc__)
  add = result.add_argument
  add("--model", metavar="NAME", help="with --task: a model of the paper")
  add("--task", choices=TASKS, help="with --model: a task of Table 4")
  add("--development", metavar="RECIPE", help="configs/NAME.py[:ARG] that scores a held-back part")
  add("--final", metavar="RECIPE", help="configs/NAME.py[:ARG] that scores the test set")
  add("--real", action="store_true", help="with --task=imagenet: score ReaL's labels too")
  add("--hyperrule", action="store_true", help="with --task: try the BiT-HyperRule too")
  add("--learning-rates", metavar="A,B,...", help="the grid; default: the task's")
  add("--seeds", type=whole(1, 1000), default=3, help="final runs (default: 3)")
  result.add_source()
  add("--jobs", type=whole(1, 1000), default=1, help="runs at the same time (default: 1)")
  add("--workdir", type=path, help="default: workdirs/sweep-NAME")
  result.add_settings()
  result.add_format("table", "json")
  how = result.add_mutually_exclusive_group()
  how.add_argument("--plan", action="store_true", help="print what it costs, and start nothing")
  how.add_argument(
    "--commands", action="store_true", help="print the commands instead of running them"
  )
  how.add_argument("--slurm", type=path, metavar="FILE", help="write a script for SLURM")
  how.add_argument("--only", metavar="WAVE:N", help="one run: 0:N of the grid, or 1:N of the seeds")
  return result


def asked(args: Namespace, overrides: list[str]) -> Sweep:
  """The sweep of a command line.

  Raises:
    ConfigError: it does not name two recipes, or a value is wrong.
  """
  if args.source:
    if any(one.startswith("--config.init_from=") for one in overrides):
      raise ConfigError("--config.init_from is what --source sets; leave out one of them.")
    overrides = [*overrides, f"--config.init_from={args.source}"]
  development, final, grid = recipes(args)
  folder = default_workdir(final)
  return Sweep(
    development=development,
    final=final,
    learning_rates=grid if args.learning_rates is None else sweep.rates(args.learning_rates),
    seeds=args.seeds,
    folder=args.workdir or folder.with_name(f"sweep-{folder.name}"),
    overrides=tuple(overrides),
    rule=rule(args),
  )


def rule(args: Namespace) -> dict:
  """The settings of --hyperrule; {} without it.

  Raises:
    ConfigError: it is given with other recipes.
  """
  if not args.hyperrule:
    return {}
  if not args.task:
    raise ConfigError("--hyperrule goes with --model and --task; leave it out.")
  return transfer.hyperrule(args.task)


def recipes(args: Namespace) -> tuple[str, str, tuple[float, ...]]:
  """The two recipes, and the task's grid of learning rates; () without a task.

  Raises:
    ConfigError: the recipes are not given, or given twice.
  """
  named, pair = (args.model, args.task), (args.development, args.final)
  if all(named) and not any(pair):
    recipe = f"{FINE_TUNING}:{args.model},{args.task}"
    final = f"{recipe}{REAL * args.real}"
    return f"{recipe},development", final, TASKS[args.task].learning_rates
  if args.real:
    raise ConfigError("--real goes with --model and --task=imagenet; leave it out.")
  if any(named) or not all(pair):
    raise ConfigError(
      "Give either --model and --task, or --development and --final: a recipe that holds back a "
      "part of the training set and scores it, and a recipe that trains on the whole set."
    )
  if args.learning_rates is None:
    raise ConfigError("--learning-rates is missing; give the grid, such as 0.003,0.01,0.03.")
  return *pair, ()


def command(args: Namespace, overrides: list[str]) -> list[str]:
  """The command that does the whole sweep."""
  of_one_start = ("plan", "commands", "slurm", "only", "jobs", "format")
  given = {key: value for key, value in vars(args).items() if value and key not in of_one_start}
  flag = lambda key, value: f"--{key}" if value is True else f"--{key}={value}"
  own = [flag(key.replace("_", "-"), value) for key, value in given.items()]
  return ["python", "tools/sweep.py", *own, *overrides]


def run(chosen: Sweep, args: Namespace, command: list[str]):
  """Does what the command line asks for.

  Raises:
    ConfigError: the sweep is wrong, or data is missing.
    RunError, Stopped: as `execution.execute`.
  """
  study = StudyRunner(sweep.study(chosen), RunStore(chosen.folder))
  if args.plan:
    print(plan.text(study, args.format, measure=True))
    return
  costs = runs.in_new_process(study.checked_costs, data=True)
  every = study.asked_jobs(None)
  if args.commands:
    for one in execution.startable(study.store, every, set()):
      print(one.command())
  elif args.slurm:
    program = [sys.executable, str(pathlib.Path(__file__).resolve()), *command[2:]]
    slurm.write(args.slurm, program, jobs.waves(every))
  else:
    runner.raise_failures(study.run(study.asked_jobs(args.only), costs, jobs=args.jobs))
    if args.only is None:
      report(chosen, study, args.format)


def report(chosen: Sweep, study: StudyRunner, form: str):
  """Writes and prints the results.

  Raises:
    RunError: the folder cannot be written to.
  """
  result = sweep.report(chosen, study.study)
  with workdir.writing(chosen.folder):
    sweep.write(chosen, result)
  print(json_text.written(result) if form == "json" else sweep.table(result))
  written = f"{chosen.folder / sweep.TABLE}, {chosen.folder / sweep.PICTURE}"
  print(f"Results: {written}", file=sys.stderr)


def main(arguments: list[str] | None = None):
  """Sweeps; see the exit status above.

  Args:
    arguments: the command line without the program's name; None: this process's own.
  """
  args, overrides = flags().parse_with_settings(arguments)
  with ending("sweep"):
    run(asked(args, overrides), args, command(args, overrides))


if __name__ == "__main__":
  console.of_tool()
  main()
