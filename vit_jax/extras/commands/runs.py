"""vit-jax train, finetune and evaluate: the main program, with the recipe put together from names.

vit-jax train RECIPE|DATA          vit-jax train vit_digits; vit-jax train photos
vit-jax finetune WEIGHTS DATA      vit-jax finetune ViT-B_16.npz photos
vit-jax evaluate WORKDIR           vit-jax evaluate workdirs/vit_digits
vit-jax evaluate WEIGHTS DATA      vit-jax evaluate params.npz photos

RECIPE: NAME[:ARG] of this project, or a path to a file that ends in .py. DATA: a folder with a
folder of images for each class, or any other source. All flags of `python -m vit_jax.main` follow:
--workdir=DIR --config.KEY=VALUE ...
"""

import sys

from vit_jax.config import ConfigError
from vit_jax.config.recipe_file import recipe_of, without_slash
from vit_jax.process import console

HELP = ("--help", "-h")
NUMBERS = {"train": (0, 1), "finetune": (0, 2), "evaluate": (0, 1, 2)}  # of names that each takes


def run(command: str, arguments: list[str]):
  """Runs one of the commands; ends the process as the main program does."""
  if set(HELP) & {*arguments}:
    print(__doc__)
  try:
    sys.argv[1:] = main_arguments(command, arguments)
  except ConfigError as error:
    console.leave(str(error), console.WRONG_USAGE)
  from vit_jax import main

  main.run()


def main_arguments(command: str, arguments: list[str]) -> list[str]:
  """The arguments of the main program.

  Raises:
    ConfigError: too many names, or too few; or a flag says the same as the names.
  """
  names = [word for word in arguments if not word.startswith("-")]
  flags = ["--help" if word == "-h" else word for word in arguments if word.startswith("-")]
  if len(names) not in NUMBERS[command]:
    usage = [line for line in __doc__.splitlines() if line.startswith(f"vit-jax {command} ")]
    forms = " or ".join(line.partition("  ")[0] for line in usage)
    raise ConfigError(f"vit-jax {command} takes {forms}; flags are given as --FLAG=VALUE.")
  if command == "evaluate":
    flags.insert(0, "--mode=evaluate")
  if not names:
    return flags
  meant = flag_of(command, names)
  for flag in flags:
    if flag.lstrip("-").partition("=")[0] == meant.lstrip("-").partition("=")[0]:
      raise ConfigError(
        f"vit-jax {command} {' '.join(names)} means {meant}; leave out the names, or {flag}."
      )
  return [meant, *flags]


def flag_of(command: str, names: list[str]) -> str:
  """The flag of the main program that names stand for."""
  if command == "train":
    return f"--config={recipe_of(*names)}"
  if len(names) == 1:
    return f"--workdir={names[0]}"
  return f"--config={command}:{','.join(map(without_slash, names))}"
