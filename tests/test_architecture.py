"""Imports run one way, and each library has its place, as docs/architecture.md draws it."""

import ast
import functools
import pathlib
import re
import subprocess
import sys

import pytest

from tests import programs
from tools import architecture

ROOT = pathlib.Path(__file__).parents[1]
FILES = sorted((ROOT / "vit_jax").rglob("*.py"))


def module_name(path):
  parts = path.relative_to(ROOT).with_suffix("").parts
  return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in FILES}


@functools.cache
def tree_of(path):
  return ast.parse(path.read_text())


@functools.cache
def imported(path):
  """Every module that a file names in an import, wherever in the file it stands."""
  names = []
  for node in ast.walk(tree_of(path)):
    if isinstance(node, ast.Import):
      names += [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
      for alias in node.names:
        inner = f"{node.module}.{alias.name}"
        names.append(inner if inner in MODULES else node.module)
  return tuple(names)


@functools.cache
def graph():
  return {name: {m for m in imported(path) if m in MODULES} for name, path in MODULES.items()}


def test_no_circles():
  edges, done = graph(), set()

  def visit(name, path):
    assert name not in path, f"circle: {' -> '.join([*path, name])}"
    if name not in done:
      for other in edges[name] - {name}:
        visit(other, [*path, name])
      done.add(name)

  for name in edges:
    visit(name, [])


# The packages, higher ones first. Nothing imports what stands above it.
LAYERS = [
  *("main api", "launch", "training", "recipes", "evaluation", "inference", "weights", "learning"),
  *("data", "models", "devices", "config", "storage", "process", "registry"),
]
EXTRAS = [
  *("commands", "benchmarks", "compiled", "experiments", "loggers"),
  "probes",
  *("report", "inspection", "plots"),
  *("dino distillation duplicates mae masked_patches preparation", "prepared_cache verification"),
  *("formats hub_card programs lora", "sources"),
  *("buckets", "settings settings_page", "extras"),
]


def is_extra(module):
  return f"{module}.".startswith("vit_jax.extras.")


def layer(module):
  """The layer of a module, by the first part of its name below vit_jax, or below extras."""
  layers, part = LAYERS, [*module.split("."), ""][1]
  if is_extra(module):
    layers, part = EXTRAS, module.removeprefix("vit_jax.").removeprefix("extras.").split(".")[0]
  return next(i for i, names in enumerate(layers) if part in names.split())


def test_imports_never_go_up():
  for name, others in graph().items():
    for other in others:
      if "." in name and "." in other and is_extra(name) == is_extra(other):
        assert layer(other) >= layer(name), f"{name} imports {other}, a layer above it"


def test_the_core_never_imports_an_extra():
  for name, others in graph().items():
    assert is_extra(name) or not any(map(is_extra, others)), f"{name} imports an extra"


def reachable(start):
  """Every module that imports lead to, and the packages around it; not what registries name."""
  edges, found, left = graph(), set(), [start]
  while left:
    name = left.pop()
    if name not in found:
      found.add(name)
      left += [*edges[name], *filter(None, [name.rpartition(".")[0]])]
  return found


def test_a_run_needs_few_modules():
  assert len(reachable("vit_jax.launch")) <= 110


@pytest.mark.skipif(sys.version_info < (3, 12), reason="needs sys.monitoring")
def test_the_demo_calls_few_files(tmp_path):
  """Files with a function that is called up to the first step; imports are left out."""
  demo = [f"--workdir={tmp_path / 'run'}", "--config=configs/vit_digits.py"]
  calls = [sys.executable, "-m", "tests.faults.driver", "calls:", *demo, "--config.model.depth=1"]
  result = programs.run(calls)
  called = [line for line in result.stdout.splitlines() if line.startswith(str(ROOT))]
  assert 40 < len(called) <= 82, (called, result.stderr)


def test_an_install_has_what_is_no_python_file():
  listed = re.search(r"package_data=({.*?}),\n", (ROOT / "setup.py").read_text(), re.DOTALL)[1]
  patterns = ast.literal_eval(listed)
  files = {path for of, some in patterns.items() for each in some for path in at(of).glob(each)}
  folders = (ROOT / "vit_jax", ROOT / "configs")
  there = {path for folder in folders for path in folder.rglob("*") if path.is_file()}
  assert files == {path for path in there if path.suffix not in (".py", ".pyc")}


def at(package):
  """The folder of a package; that of the recipes is beside vit_jax."""
  return ROOT.joinpath(*package.replace("vit_jax.configs", "configs").split("."))


@pytest.mark.parametrize(
  ("library", "allowed"),
  [
    ("orbax", ()),
    ("tensorstore", ("vit_jax.storage.arrays", "vit_jax.extras.buckets.bucket")),
    ("obstore", ("vit_jax.extras.buckets",)),
    ("flax.linen", ("vit_jax.models",)),
    ("tensorflow_datasets", ("vit_jax.data.sources.tfds", "vit_jax.extras.preparation")),
    ("jinja2", ("vit_jax.extras.report",)),
    ("wandb", ("vit_jax.extras.loggers.wandb",)),
    ("mlflow", ("vit_jax.extras.loggers.mlflow",)),
    ("trackio", ("vit_jax.extras.loggers.trackio",)),
    ("apache_beam", ("vit_jax.extras.duplicates.pipeline",)),
    ("tensorflow", ("vit_jax.extras.benchmarks", "vit_jax.extras.commands.prepare")),
    ("torch", ("vit_jax.extras.benchmarks", "vit_jax.extras.commands.convert_pickle")),
  ],
)
def test_each_library_has_its_place(library, allowed):
  for name, path in MODULES.items():
    for other in imported(path):
      if other == library or other.startswith(library + "."):
        assert name.startswith(allowed), f"{name} imports {other}"


# Functions that reach files by themselves. `replace` is mostly of texts, `path` is `os.path`.
REACHING = {
  *("write_text", "write_bytes", "read_text", "mkdir", "rename", "touch", "unlink", "rmdir"),
  *("exists", "is_file", "is_dir", "iterdir", "glob", "rglob", "stat", "resolve", "savefig"),
  *("listdir", "scandir", "walk", "access", "remove", "makedirs", "realpath", "isfile", "isdir"),
  *("lexists", "rmtree", "copytree", "copyfile", "move"),
}
OURS = ("files.", "recipes.", "ast.")
# What is of this machine, wherever a run lies.
OF_THIS_MACHINE = (
  "vit_jax.data",  # datasets, and caches of them
  *(
    f"vit_jax.extras.{name}"
    for name in ("sources", "prepared_cache", "preparation", "duplicates", "commands")
  ),
  "vit_jax.process.machine",  # limits
  *("vit_jax.config.recipe_file", "vit_jax.config.suggestions"),  # recipes
  *(f"vit_jax.extras.experiments.studies.{name}" for name in ("loading", "record", "stale")),
  "vit_jax.process.program",  # its code
  *("vit_jax.extras.benchmarks", "vit_jax.extras.compiled"),  # of this machine and its compilers
  "vit_jax.extras.inspection.gallery",  # images that the user names
  # Formats of weights, which libraries read: vit_jax.weights.source brings them here.
  *(f"vit_jax.weights.{name}" for name in ("arrays", "card", "format", "npz")),
  "vit_jax.extras.formats",
  *("vit_jax.storage.files", "vit_jax.storage.local", "vit_jax.extras.buckets"),  # the way itself
)


def reached(path):
  """How a file reaches files without `storage.files`; what that hands out is called `partial`."""
  for node in ast.walk(tree_of(path)):
    if not isinstance(node, ast.Call) or "partial" in map(ast.unparse, node.args):
      continue
    name = ast.unparse(node.func)
    last = name.rpartition(".")[2]
    if name == "open" or ("." in name and last in REACHING and not name.startswith(OURS)):
      yield last


def test_what_is_not_of_this_machine_is_reached_by_one_module():
  around = {name for name, path in MODULES.items() if set(reached(path))}
  covers = lambda name: [at for at in OF_THIS_MACHINE if name == at or name.startswith(f"{at}.")]
  assert not {name for name in around if not covers(name)}
  assert {at for name in around for at in covers(name)} == set(OF_THIS_MACHINE)


LOADS = """
import sys, vit_jax.training.loop
print(*(name for name in sys.modules if name.startswith("vit_jax")))
import vit_jax.weights, vit_jax.evaluation.evaluate, vit_jax.launch, vit_jax.data.sources.tfds
print(*({name.partition(".")[0] for name in sys.modules} & {"jax", "tensorflow"}))
"""


def test_the_loop_loads_what_a_step_needs_and_no_run_tensorflow():
  """Reports, plots and evaluations are callbacks, or come after the loop."""
  result = subprocess.run([sys.executable, "-c", LOADS], capture_output=True, text=True, cwd=ROOT)
  assert result.returncode == 0, result.stderr
  loaded, libraries = map(str.split, result.stdout.splitlines())
  assert "vit_jax.training.loop" in loaded
  assert len(loaded) <= 50, loaded
  assert libraries == ["jax"]


def test_the_picture_shows_the_packages_and_their_imports():
  text, known = (ROOT / "docs/images/architecture.svg").read_text(), architecture.packages()
  drawn = re.findall(r'id="(\w+) imports (\w+)"', text)
  again = "run: python tools/architecture.py --output docs/images/architecture.svg"
  assert sorted(drawn) == sorted(architecture.arrows(known)), again
  names = re.findall(r'id="package (\w+)"', text)
  assert sorted(names) == sorted(known), again


def test_every_package_has_its_place_in_the_map():
  text = (ROOT / "docs" / "architecture.md").read_text()
  packages = {name.split(".")[1] for name, path in MODULES.items() if name.count(".") > 1}
  for name in packages:
    assert f"`{name}/`" in text, name


# Where whole configs are made, compared and taken apart (docs/decisions/settings.md).
OF_CONFIGS = (
  *("config", "recipes", "learning", "evaluation", "training", "main", "api", "launch"),
  *("extras.report", "extras.experiments", "extras.masked_patches", "extras.commands"),
  *("extras.benchmarks", "extras.compiled", "extras.lora", "extras.distillation"),
  *("extras.mae", "extras.dino"),
)


def taking_the_config(path):
  """Names of a file's functions with a parameter that is a whole `Config`."""
  for node in ast.walk(tree_of(path)):
    if isinstance(node, ast.FunctionDef):
      kinds = [ast.unparse(a.annotation) for a in ast.walk(node.args) if is_annotated(a)]
      if any(kind.split(".")[-1] == "Config" for kind in kinds):
        yield node.name


def is_annotated(node):
  return isinstance(node, ast.arg) and node.annotation is not None


def test_a_function_takes_the_groups_of_settings_that_it_reads():
  names = [
    f"{name.removeprefix('vit_jax.')}.{function}"
    for name, path in MODULES.items()
    if not f"{name.removeprefix('vit_jax.')}.".startswith(tuple(f"{of}." for of in OF_CONFIGS))
    for function in taking_the_config(path)
  ]
  assert not names
