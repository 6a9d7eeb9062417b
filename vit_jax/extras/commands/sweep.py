"""Chooses a learning rate on a development part of the training set, then scores the test set once.

vit-jax sweep --model ViT-B/16 --task cifar10 --source PATH
vit-jax sweep --development RECIPE --final RECIPE --learning-rates 0.003,0.01 [--seeds 3]

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

If the command was stopped, start it again: it continues, and does nothing twice. Learning rates and
seeds may be added. A failed run does not affect the others. WORKDIR gets the files of a study, as
with vit-jax study, which also says what --plan, --slurm and --commands do: results.md has the
accuracy of each candidate on the development part, and figure.png draws it beside that of the
test set.

Exit status: 0 done; 2 wrong usage or config; 75 stopped by a signal: start it again; 1 a run
failed, or anything else.
"""

from argparse import Namespace

from vit_jax.config import ConfigError, recipe_file
from vit_jax.config.default_workdir import readable
from vit_jax.config.tool_flags import ToolFlags, ending, whole
from vit_jax.extras.experiments import sweep
from vit_jax.extras.experiments.studies import Study, command, transfer
from vit_jax.recipes import TASKS

FINE_TUNING = "configs/finetune.py"
REAL = ",real"


def flags() -> ToolFlags:
  """The command line."""
  result = ToolFlags("sweep", __doc__)
  add = result.add_argument
  add("--model", metavar="NAME", help="with --task: a model of the paper")
  add("--task", choices=TASKS, help="with --model: a task of Table 4")
  add("--development", metavar="RECIPE", help="configs/NAME.py[:ARG] that scores a held-out part")
  add("--final", metavar="RECIPE", help="configs/NAME.py[:ARG] that scores the test set")
  add("--real", action="store_true", help="with --task=imagenet: score ReaL's labels too")
  add("--hyperrule", action="store_true", help="with --task: try the BiT-HyperRule too")
  add("--learning-rates", metavar="A,B,...", help="the grid; default: the task's")
  add("--seeds", type=whole(1, 1000), default=3, help="final runs (default: 3)")
  result.add_source()
  command.add_flags(result, workdir="workdirs/sweep-NAME")
  return result


def asked(args: Namespace, overrides: list[str]) -> tuple[Study, str]:
  """The sweep of a command line as a study, and the name of its folder.

  Raises:
    ConfigError: it does not name two recipes, or a value is wrong.
  """
  if args.source:
    if any(flag.startswith("--config.init_from=") for flag in overrides):
      raise ConfigError("--config.init_from is what --source sets; leave out one of them.")
    overrides = [*overrides, f"--config.init_from={args.source}"]
  if args.hyperrule and not args.task:
    raise ConfigError("--hyperrule goes with --model and --task; leave it out.")
  development, final, grid = recipes(args)
  if args.learning_rates is not None:
    grid = sweep.rates(args.learning_rates)
  rule = None
  if args.hyperrule:
    texts, _ = recipe_file.split_settings(overrides)
    rule = transfer.hyperrule(args.task, texts)
  study = sweep.study(
    development,
    final,
    learning_rates=grid,
    seeds=args.seeds,
    overrides=overrides,
    rule=rule,
  )
  return study, f"sweep-{readable(final)}"


def recipes(args: Namespace) -> tuple[str, str, tuple[float, ...]]:
  """The two recipes, and the task's grid of learning rates; () without a task.

  Raises:
    ConfigError: the recipes are not given, or given twice.
  """
  named = (args.model, args.task)
  pair = (args.development, args.final)
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


def main(arguments: list[str] | None = None):
  """Sweeps; see the exit status above.

  Args:
    arguments: the command line without the program's name; None: this process's own.
  """
  args, overrides = flags().parse_with_settings(arguments)
  with ending("sweep"):
    study, folder = asked(args, overrides)
    command.conduct(study, folder, args, command.words("sweep", args, overrides))
