"""Only the registry and its own file name a member; others ask the registry or the member."""

import ast
import pathlib

import pytest

from vit_jax import registry

ROOT = pathlib.Path(__file__).parents[2]
FILES = {
  ".".join(path.relative_to(ROOT).with_suffix("").parts): path
  for path in sorted((ROOT / "vit_jax").rglob("*.py"))
}
SEAMS = {name: of for name, of in vars(registry).items() if isinstance(of, registry.Registry)}


def constants(path):
  """Every text in a file that is a whole string, and the module of every import."""
  tree = ast.parse(path.read_text(encoding="utf-8"))
  for node in ast.walk(tree):
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
      yield node.value
    elif isinstance(node, ast.Import):
      yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
      yield node.module
      yield from (f"{node.module}.{alias.name}" for alias in node.names)


TEXTS = {module: {*constants(path)} for module, path in FILES.items()}


# Settings name the member that is taken by default, and recipes choose one.
ALLOWED = {
  "OBJECTIVES": {
    ("vit_jax.config.run", "classification"),
    ("vit_jax.evaluation.reconstruction", "masked_patches"),  # evaluates what it learns
    ("vit_jax.evaluation.classification", "classification"),  # of the same name
  },
  "EVALUATIONS": {
    ("vit_jax.config.run", "classification"),
    ("vit_jax.learning.classification", "classification"),  # of the same name
  },
  "FAMILIES": {  # formats of other libraries; they read names of parameters
    ("vit_jax.weights.huggingface", "vit"),
  },
  "OPTIMIZERS": {("vit_jax.config.run", "adam")},
  "SOURCES": {
    ("vit_jax.data.sources.vtab_tasks", "tfds"),  # its tasks are datasets of TFDS
    ("vit_jax.data.sources.objectnet", "folder"),  # a folder with other names of its classes
    ("vit_jax.data.image_files", "folder"),  # the word, not the source
    ("vit_jax.storage.base", "folder"),
    ("vit_jax.experiments.vtab", "vtab"),  # the benchmark
  },
  "STORAGES": {  # paths that are no URL; "file" also says what is at a path
    ("vit_jax.storage.base", "file"),
    ("vit_jax.storage.paths", "file"),
  },
  "WEIGHT_FORMATS": {  # both are folders with a file of that format
    ("vit_jax.weights.huggingface", "safetensors"),
    ("vit_jax.weights.timm_hub", "safetensors"),
  },
}


def naming(members):
  """(module, name) of each member that a module names or imports, without its own and recipes."""
  for name in members:
    home = members.line(name).partition(":")[0]
    for module, texts in TEXTS.items():
      own = module in ("vit_jax.registry", home) or module.startswith("vit_jax.recipes.")
      if not own and texts & {name, home}:
        yield module, name


@pytest.mark.parametrize("seam", ALLOWED)
def test_members_are_named_by_the_registry_and_their_own_file_alone(seam):
  assert {*naming(SEAMS[seam])} == ALLOWED[seam]


def test_every_seam_is_listed():
  assert ALLOWED.keys() == SEAMS.keys()


def test_every_line_leads_to_its_member():
  for members in SEAMS.values():
    for name in members:
      assert members[name]
