"""Fine-tunes a model on the tasks of VTAB-1k, and prints its scores beside the paper's Table 9.

vit-jax vtab --source ViT-L_16.npz --model ViT-L/16 --pretraining ImageNet-21k
vit-jax vtab --source ViT-L_16.npz --model ViT-L/16 --tasks pets,svhn --fast

Each task has three runs of configs/vtab.py, with different seeds and the same settings: 1,000
training images, 2,500 steps at 384 px; the test set is scored after the last step. The score is the
mean of the 19 test accuracies. The tables have it, the means of the groups and the accuracy of each
task, with standard deviations over the seeds. --pretraining shows the numbers of Table 9 for this
model and this data beside them.

--learning-rates and --steps give settings to choose from, as the authors did with two of each:
every pair trains on 800 images of each task and is scored on the other 200. The pair with the best
mean over the tasks (the first of equally good ones) is then used for the runs that are scored on
the test images, which are not read before.

If the command was stopped, start it again: it continues. Tasks may be added. A failed run does not
affect the others. --config.KEY=VALUE goes to every run. WORKDIR gets the files of a study, as with
vit-jax study, which also says what --plan, --slurm and --commands do.

The tool downloads nothing: prepare the data with TFDS first. If datasets are missing, it lists all
of them with the commands that prepare them, and starts nothing.

Exit status: 0 done; 2 wrong usage, config or data; 75 stopped by a signal: start it again; 1 a run
failed, or anything else.
"""

import functools
from argparse import Namespace

from vit_jax.config import ConfigError
from vit_jax.config.tool_flags import ToolFlags, ending, whole
from vit_jax.extras.experiments import vtab
from vit_jax.extras.experiments.studies import Study, command


def flags() -> ToolFlags:
  """The command line."""
  result = ToolFlags("vtab", __doc__)
  result.add_source(required=True)
  add = result.add_argument
  add(
    "--model", default="ViT-B/16", metavar="NAME", help="model of the weights (default: ViT-B/16)"
  )
  add(
    "--pretraining",
    choices=("JFT-300M", "ImageNet-21k"),
    default="",
    help="the data of the weights, ViT-H/14 or ViT-L/16: shows their numbers in Table 9 too",
  )
  add("--tasks", default="", metavar="A,B,...", help="default: all 19")
  add("--seeds", type=whole(1, 1000), help="runs of each task (default: 3; with --fast 1)")
  add("--learning-rates", default="", metavar="A,B,...", help="candidates, with --steps")
  add("--steps", default="", metavar="A,B,...", help="candidates, with --learning-rates")
  add("--fast", action="store_true", help="a smoke run: 4 steps on a few small images")
  command.add_flags(result, workdir="workdirs/vtab-NAME, or vtab-NAME-fast")
  return result


def asked(args: Namespace, overrides: list[str]) -> Study:
  """The benchmark of a command line as a study.

  Raises:
    ConfigError: it names a task that does not exist, or settings that are wrong.
  """
  candidates = vtab.grid(args.learning_rates, args.steps)
  if args.fast and candidates:
    raise ConfigError("--fast has its own few steps; leave out --learning-rates and --steps.")
  usual_seeds = 1 if args.fast else 3
  return vtab.study(
    args.model,
    args.source,
    tasks=vtab.tasks(args.tasks),
    smoke=args.fast,
    candidates=candidates,
    seeds=args.seeds or usual_seeds,
    overrides=overrides,
    pretraining=args.pretraining,
  )


def main(arguments: list[str] | None = None):
  """Runs the benchmark; see the exit status above.

  Args:
    arguments: the command line without the program's name; None: this process's own.
  """
  args, overrides = flags().parse_with_settings(arguments)
  with ending("vtab"):
    command.conduct(
      asked(args, overrides),
      f"vtab-{args.model.replace('/', '_')}{'-fast' * args.fast}",
      args,
      command.words("vtab", args, overrides),
      check_data=functools.partial(vtab.check_data, vtab.tasks(args.tasks)),
    )
