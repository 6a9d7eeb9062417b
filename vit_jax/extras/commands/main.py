"""The command vit-jax: vit-jax COMMAND ...; `vit-jax COMMAND --help` describes each.

Exit status: that of the command; 2 if there is no such command.
"""

import importlib
import sys

import vit_jax
from vit_jax.config.suggestions import similar
from vit_jax.process import console, machine

COMMANDS = {
  "train": "train a recipe, or a small model on your own images",
  "finetune": "fine-tune weights on your own images, or on a task of the paper",
  "evaluate": "score a run again, or weights on your own images",
  "predict": "the most probable classes of images",
  "probe": "kNN, linear and attentive probes of an encoder on your images",
  "search": "the most similar images in a folder",
  "export": "a run, or other weights, as a file of weights",
  "visualize": "pictures of attention, filters, positions, features and augmentations",
  "report": "one page about a run, or about several side by side",
  "cost": "parameters, checkpoint bytes and FLOPs of a recipe or a model",
  "compile-check": "memory and speed on TPUs and GPUs that are not there",
  "study": "many runs, one table, one picture",
  "sweep": "a grid of settings",
  "vtab": "VTAB-1k",
  "prepare": "datasets, for training",
  "cache": "decode training images once, for faster reading",
  "dedup": "find copies of test images among training images",
  "convert-pickle": "weights that torch pickled, as safetensors",
  "speed": "speed of models by image size, on this machine",
  "benchmark": "speed of this project beside others, on this machine",
}
OF_RUNS = ("train", "finetune", "evaluate")
ON_CPU = (*OF_RUNS, "speed", "benchmark")  # these compute for long: worth a restart for huge pages
COMPLETION = 'complete -o default -W "{words}" vit-jax'


def run(name: str = ""):
  """The console script; the doors in tools/ give the name of their command."""
  arguments = sys.argv[1:]
  if not name:
    name, *arguments = arguments or ["--help"]
  if name in ("--help", "-h"):
    print(usage())
  elif name == "--version":
    print(vit_jax.__version__)
  elif name == "completion":
    print(COMPLETION.format(words=" ".join(COMMANDS)))
  elif name in COMMANDS:
    begin(name, arguments)
  else:
    nearest = similar(name, COMMANDS)
    console.leave(f"vit-jax has no command {name!r}; nearest: {nearest}.", console.WRONG_USAGE)


def begin(name: str, arguments: list[str]):
  """Runs a command of `COMMANDS`."""
  if name in ON_CPU:
    machine.ask_for_huge_pages()
  if name in OF_RUNS:
    from vit_jax.extras.commands import runs

    runs.run(name, arguments)
  else:
    console.of_tool()
    importlib.import_module(f"vit_jax.extras.commands.{name.replace('-', '_')}").main(arguments)


def usage() -> str:
  """The text of --help."""
  width = max(map(len, COMMANDS))
  lines = [f"  {name:{width}}  {what}" for name, what in COMMANDS.items()]
  return "\n".join(
    [
      "usage: vit-jax COMMAND ...",
      "",
      *lines,
      "",
      "vit-jax COMMAND --help describes a command. vit-jax --version prints the version.",
      'Completion in bash: eval "$(vit-jax completion)"',
    ]
  )


if __name__ == "__main__":
  run()
