"""Only the registry and its own file name a member; others ask the registry or the member."""

import ast
import functools
import pathlib
import re

import pytest

from vit_jax import models, registry

ROOT = pathlib.Path(__file__).parents[2]
FILES = {
  ".".join(path.relative_to(ROOT).with_suffix("").parts): path
  for path in sorted((ROOT / "vit_jax").rglob("*.py"))
}
SEAMS = {name: of for name, of in vars(registry).items() if isinstance(of, registry.Registry)}


def constants(path):
  """Every text in a file that is a whole string, and every import of this package."""
  tree = ast.parse(path.read_text(encoding="utf-8"))
  for node in ast.walk(tree):
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
      yield node.value
    elif isinstance(node, ast.ImportFrom) and node.module.startswith("vit_jax"):
      yield node.module
      yield from (f"{node.module}.{alias.name}" for alias in node.names)


@functools.cache
def texts():
  """The constants of each module; not read until a test asks, since every worker collects them."""
  return {module: {*constants(path)} for module, path in FILES.items()}


# Settings name the member that is taken by default, and recipes choose one.
ALLOWED = {
  "AUGMENTATIONS": set(),
  "OBJECTIVES": {
    ("vit_jax.config.run", "classification"),
    ("vit_jax.extras.distillation.objective", "classification"),  # adds a loss to it
    ("vit_jax.extras.masked_patches.reconstruction", "masked_patches"),  # evaluates what it learns
  },
  "EVALUATIONS": {
    ("vit_jax.config.run", "classification"),
    ("vit_jax.extras.experiments.vtab_finetuning", "classification"),  # a recipe
  },
  "FAMILIES": {  # formats of other libraries; they read names of parameters
    ("vit_jax.extras.formats.huggingface", "vit"),
  },
  "PARAMETRIZATIONS": {("vit_jax.extras.settings", "lora")},  # the setting
  "OPTIMIZERS": {("vit_jax.config.run", "adam")},
  "SOURCES": {
    ("vit_jax.extras.sources.vtab_tasks", "tfds"),  # its tasks are datasets of TFDS
    ("vit_jax.extras.sources.objectnet", "folder"),  # a folder with other names of its classes
    ("vit_jax.extras.preparation.prepare", "tfds"),  # which reads what it makes
    ("vit_jax.data.image_files", "folder"),  # the word, not the source
    ("vit_jax.storage.base", "folder"),
    ("vit_jax.extras.experiments.vtab", "vtab"),  # the benchmark
    ("vit_jax.extras.experiments.vtab_finetuning", "vtab"),
    ("vit_jax.inference.predict", "csv"),  # the form of a report
  },
  "STORAGES": {  # paths that are no URL; "file" also says what is at a path
    ("vit_jax.storage.base", "file"),
    ("vit_jax.extras.sources.csv_file", "file"),  # a usual name of a column
    ("vit_jax.storage.paths", "file"),
  },
  "WEIGHT_FORMATS": {  # folders with a file of that format
    ("vit_jax.extras.formats.huggingface", "safetensors"),
    ("vit_jax.extras.formats.shards", "safetensors"),
    ("vit_jax.extras.formats.open_clip", "safetensors"),
    ("vit_jax.extras.formats.open_clip_timm", "safetensors"),
    ("vit_jax.extras.formats.open_clip_timm", "timm"),  # image encoders of timm in OpenCLIP
    ("vit_jax.extras.formats.timm_hub", "safetensors"),
    ("vit_jax.config.model", "timm"),  # a kind of normalisation, not the format
    ("vit_jax.models.stem", "timm"),
    ("vit_jax.extras.formats.vit_names", "timm"),
    ("vit_jax.extras.verification.verification", "safetensors"),  # the values that it keeps
  },
  "MODEL_TYPES": {
    ("vit_jax.extras.formats.huggingface", "vit"),  # of a file that names none
    # Words in names of models.
    *(
      ("vit_jax.extras.formats.vit_names", name)
      for name in ("beit", "clip", "deit", "dinov2", "siglip")
    ),
  },
  "PROGRAM_FORMATS": set(),
  "ARRAY_NAMES": {  # kinds of normalisation, and a format of that library
    ("vit_jax.config.model", "timm"),
    ("vit_jax.models.stem", "timm"),
    ("vit_jax.extras.formats.vit_names", "timm"),
    ("vit_jax.extras.formats.open_clip", "timm"),  # heads of models of a width
    ("vit_jax.extras.formats.open_clip_timm", "timm"),  # image encoders of timm in OpenCLIP
  },
  "CALLBACKS": {  # the setting
    ("vit_jax.extras.loggers.logger", "report"),
    ("vit_jax.extras.report.messages", "report"),
    *(("vit_jax.extras.settings", name) for name in ("report", "wandb", "mlflow", "trackio")),
  },
  "MODEL_NAMES": {("vit_jax.extras.formats.huggingface", "vit")},  # names of parameters
  "SETTINGS": set(),
  "TRAINING_VIEWS": set(),
}


# Recipes, commands, benchmarks and probes choose members.
CHOOSING = (
  "vit_jax.recipes.",
  *(f"vit_jax.extras.{name}." for name in ("commands", "benchmarks", "compiled", "probes")),
)


def naming(members):
  """(module, name) of each member that a module names or imports.

  Left out are the registry, `CHOOSING`, the member's own file, and those of other seams' members of
  the same name.
  """
  for name in members:
    home = members.line(name).partition(":")[0]
    homes = [seam.line(name).partition(":")[0] for seam in SEAMS.values() if name in seam]
    for module, words in texts().items():
      own = module in ("vit_jax.registry", *homes)
      chooses = module.startswith(CHOOSING) or module.endswith(".recipe")
      if not own and not chooses and words & {name, home}:
        yield module, name


@pytest.mark.parametrize("seam", ALLOWED)
def test_members_are_named_by_the_registry_and_their_own_file_alone(seam):
  assert {*naming(SEAMS[seam])} == ALLOWED[seam]


def searched(path):
  """Each text that a file looks for in another, as in `"ViT" in name`, `name.startswith("ViT")`."""
  for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
      yield node.left
    elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "startswith":
      yield from node.args


def test_no_part_of_a_models_name_decides_anything():
  """A family tells what its models have; in its own files, names are patterns."""
  words = {word for name in models.names() for word in re.findall(r"[A-Za-z]{2,}", name)}
  texts = [
    (str(path), node.value)
    for path in (*FILES.values(), *sorted((ROOT / "configs").rglob("*.py")))
    for node in searched(path)
    if isinstance(node, ast.Constant) and isinstance(node.value, str)
  ]
  assert [place for place in texts if any(word in place[1] for word in words)] == []
  assert len(texts) > 50


def test_every_seam_is_listed():
  assert ALLOWED.keys() == SEAMS.keys()


def test_every_line_leads_to_its_member():
  for members in SEAMS.values():
    for name in members:
      assert members[name]
