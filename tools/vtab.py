"""Fine-tunes a model on the tasks of VTAB-1k, and prints its scores beside the paper's Table 9.

python tools/vtab.py --source ViT-L_16.npz --model ViT-L/16
python tools/vtab.py --source ViT-L_16.npz --model ViT-L/16 --tasks pets,svhn --fast

Every task is three runs of configs/vtab.py with different seeds, workdirs below --workdir and the
same settings: 1,000 training images, 2,500 steps at 384 px, the test set scored after the last
step. The score is the mean of the 19 test accuracies; the table has the mean and the standard
deviation over the seeds.

--learning-rates and --steps give settings to choose from, as the authors did with two of each:
every pair trains on 800 images of each task and is scored on the other 200. The pair with the best
mean over the tasks (the first of equally good ones) is then used for the runs that are scored on
the test images, which are not read before.

--plan prints runs, steps, images, FLOPs and the time on this machine, from steps that it times for
about a minute, and starts nothing.

If the command was stopped, start it again: it continues. Tasks may be added. A run that fails costs
no other. --config.KEY=VALUE goes to every run. What a run prints is in WORKDIR/runs/NAME.log; the
table is also in vtab.csv.

The tool downloads nothing: prepare the data with TFDS first. If datasets are missing, it lists all
of them with the commands that prepare them, and begins nothing.

Exit status: 0 done; 2 wrong usage, config or data; 75 stopped by a signal: start it again; 1 a run
failed, or anything else.
"""

import pathlib
import sys
from argparse import Namespace

from vit_jax.config import ConfigError
from vit_jax.config.tool_ending import ending
from vit_jax.config.tool_flags import ToolFlags, path, whole
from vit_jax.experiments import runs, vtab
from vit_jax.experiments.studies import plan, runner
from vit_jax.experiments.studies.runner import StudyRunner
from vit_jax.experiments.studies.store import RunStore
from vit_jax.experiments.vtab import Benchmark
from vit_jax.process import console, json_text
from vit_jax.storage import workdir


def flags() -> ToolFlags:
  """The command line."""
  result = ToolFlags("vtab", __doc__)
  result.add_source(required=True)
  add = result.add_argument
  add(
    "--model", default="ViT-B/16", metavar="NAME", help="model of the weights (default: ViT-B/16)"
  )
  add("--tasks", default="", metavar="A,B,...", help="default: all 19")
  add("--seeds", type=whole(1, 1000), help="runs of each task (default: 3; with --fast 1)")
  add("--learning-rates", default="", metavar="A,B,...", help="to choose from, with --steps")
  add("--steps", default="", metavar="A,B,...", help="to choose from, with --learning-rates")
  add("--fast", action="store_true", help="a smoke run: 4 steps on a few small images")
  add("--plan", action="store_true", help="print what it costs, and start nothing")
  add("--jobs", type=whole(1, 1000), default=1, help="runs at the same time (default: 1)")
  add("--workdir", type=path, help="default: workdirs/vtab-NAME, or vtab-NAME-fast")
  result.add_settings()
  result.add_format("table", "json")
  return result


def asked(args: Namespace, overrides: list[str]) -> Benchmark:
  """The benchmark of a command line.

  Raises:
    ConfigError: it names a task that does not exist, or settings that are wrong.
  """
  settings = vtab.grid(args.learning_rates, args.steps)
  if args.fast and settings:
    raise ConfigError("--fast has its own few steps; leave out --learning-rates and --steps.")
  name = f"vtab-{args.model.replace('/', '_')}{'-fast' if args.fast else ''}"
  return Benchmark(
    model=args.model,
    source=args.source,
    tasks=vtab.tasks(args.tasks),
    smoke=args.fast,
    folder=args.workdir or pathlib.Path("workdirs") / name,
    settings=settings,
    seeds=args.seeds or (1 if args.fast else 3),
    overrides=tuple(overrides),
  )


def run(benchmark: Benchmark, args: Namespace):
  """Does the runs that are not done yet, and prints the table.

  Raises:
    ConfigError: as `vtab.checked_costs`.
    RunError, Stopped: as `execution.execute`.
  """
  some = vtab.study(benchmark)
  study = StudyRunner(some, RunStore(benchmark.folder))
  if args.plan:
    print(plan.text(study, args.format, measure=True))
    return
  costs = runs.in_new_process(vtab.checked_costs, benchmark, study)
  runner.raise_failures(study.run(study.asked_jobs(None), costs, jobs=args.jobs))
  result = vtab.report(benchmark, some)
  with workdir.writing(benchmark.folder):
    vtab.write(benchmark, result)
  print(json_text.written(result) if args.format == "json" else vtab.table(result))
  print(f"Results: {benchmark.folder / vtab.TABLE}", file=sys.stderr)


def main(arguments: list[str] | None = None):
  """Runs the benchmark; see the exit status above.

  Args:
    arguments: the command line without the program's name; None: this process's own.
  """
  args, overrides = flags().parse_with_settings(arguments)
  with ending("vtab"):
    run(asked(args, overrides), args)


if __name__ == "__main__":
  console.of_tool()
  main()
