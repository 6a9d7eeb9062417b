"""What a GPU would run is compiled for GPUs that are not there, at small sizes.

`make test` compiles one program of each class; `make gpu` all of them, with --gpu.
"""

import csv
import functools
import importlib.util
import pathlib
import re

import jax
import jax.numpy as jnp
import pytest

from tests import resolved
from vit_jax import config as c
from vit_jax import recipes
from vit_jax.evaluation import classification, few_shot, nearest_neighbours
from vit_jax.evaluation.spec import EvalContext
from vit_jax.extras.compiled import compilation, platforms, report
from vit_jax.extras.compiled.breakdown import breakdown
from vit_jax.extras.compiled.compilation import overridden
from vit_jax.extras.compiled.platform import known
from vit_jax.extras.experiments import step_program
from vit_jax.extras.masked_patches import reconstruction
from vit_jax.extras.masked_patches.objective import Masked
from vit_jax.inference import predict
from vit_jax.learning.optimizers.adam import Adam
from vit_jax.recipes import cost

INSTALLED = importlib.util.find_spec("jax_cuda13_plugin") is not None

SMALL = resolved.config(
  batch_size=16,
  duration=c.Duration(steps=9),
  model=c.Model(
    **dict(name="ViT-Ti/4", depth=1, width=64, mlp_dim=128, heads=1, num_classes=7),
    **dict(compute_dtype="bfloat16", attention="xla"),
  ),
  loss=c.Loss(kind="softmax"),
  optimizer=Adam(weight_decay=0.1, clip_norm=1.0, ema=0.99),
  data=c.Data(image_size=16),
)
MODELS = {
  "accumulation, scan, remat, MixUp, 50 tokens": {
    "accumulation": 2,
    "model.scan": True,
    "model.depth": 2,
    "model.remat": "dots",
    "model.attention": "cudnn",
    "objective.mixup": 0.2,
    "data.image_size": 28,
  },
}
MORE_MODELS = {
  "ResNet": {
    "model": c.Model(name="R50x1", stages=(1,), width=64, num_classes=7, compute_dtype="bfloat16"),
    "data.image_size": 32,
  },
  "ViT in float32": {"model.compute_dtype": "float32", "model.dropout": 0.1},
  "axial": {"model.name": "Axial-ViT-B/4", "model.attention": "cudnn"},
  "masked patches": {"objective": Masked(), "model.attention": "cudnn"},
  "dropout": {"model.dropout": 0.1, "model.attention": "cudnn"},
  "hybrid": {
    "model": c.Model(
      **dict(name="R50x1+ViT-B/16", stages=(1,), depth=1, width=64, mlp_dim=128, heads=1),
      **dict(num_classes=7, compute_dtype="bfloat16", attention="cudnn"),
    ),
    "data.image_size": 32,
  },
}


@pytest.fixture(autouse=True)
def _asked_for(request):
  """Only `make gpu` compiles the programs with the mark "gpu", and it needs the compiler."""
  every = request.config.getoption("--gpu")
  if not INSTALLED:
    (pytest.fail if every else pytest.skip)("the GPU compiler is not installed: docs/gpus.md")
  if request.node.get_closest_marker("gpu") and not every:
    pytest.skip("make gpu compiles it")


def all_and_few(few, more):
  """Pairs for a test: those that each run of the tests has, and those of `make gpu`."""
  return [*few, *(pytest.param(*each, marks=pytest.mark.gpu) for each in more)]


@functools.cache
def devices(topology):
  return platforms.devices_of(topology)


def compiled(overrides, topology="h100:1"):
  """The training step of the small model, with other settings."""
  return compilation.compile_step(overridden(SMALL, overrides), devices(topology))


@pytest.mark.parametrize(
  ("_name", "overrides"),
  all_and_few(MODELS.items(), MORE_MODELS.items()),
  ids=[*MODELS, *MORE_MODELS],
)
def test_every_kind_of_model_trains(_name, overrides):
  program = compiled(overrides)
  assert program.fits
  assert sum(part.flops for part in breakdown(program.text, known(program.device_kind))) > 0
  of_cudnn = overridden(SMALL, overrides).model.attention == "cudnn"
  assert ("__cudnn$fmhaSoftmaxBackward" in program.text) == of_cudnn


@pytest.mark.gpu
@pytest.mark.parametrize("attention", ["xla", "cudnn"])
@pytest.mark.parametrize("side", [16, 28, 56, 64])  # 17, 50, 197 and 257 tokens
def test_attention_trains_with_any_number_of_tokens(side, attention):
  program = compiled({"model.attention": attention, "data.image_size": side})
  assert ("__cudnn$fmhaSoftmaxBackward" in program.text) == (attention == "cudnn")


@functools.cache
def counted():
  """The step of two blocks and 64 tokens: its program, parts and plan."""
  overrides = {"model.depth": 2, "model.width": 128, "model.mlp_dim": 512}
  overrides |= {"data.image_size": 32, "model.pool": "gap"}
  program = compiled(overrides)
  parts = breakdown(program.text, known(program.device_kind))
  return program, parts, step_program.planned(overridden(SMALL, overrides), devices("h100:1"))


def test_matmuls_are_those_of_our_own_count_and_memory_holds_state_and_batch():
  """XLA's attention computes the logits twice in the forward pass, and images have no gradient."""
  program, parts, run = counted()
  again = 2 * 2 * 16 * 64**2 * 128
  embedding = 2 * 16 * 64 * (4 * 4 * 3) * 128
  found = sum(part.flops for part in parts) - again + embedding
  assert found == pytest.approx(16 * cost.training_flops(run.config), rel=0.01)
  moved = sum(part.moved_bytes for part in parts)
  assert sum(part.moved_bytes for part in parts if part.category == "other") < 0.01 * moved
  state = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(run.abstract))
  assert program.peak_bytes >= state + 16 * 32 * 32 * 3


def test_norms_and_update_take_few_kernels_and_copy_no_parameter():
  """With a norm of each array, and old values that are kept, there are five for each array."""
  program, parts, run = counted()
  after_the_model = ("gradient norm", "optimizer update", "moving average", "other")
  launches = sum(part.launches for part in parts if part.category in after_the_model)
  assert launches < 2 * len(jax.tree.leaves(run.abstract.params))
  assert not re.findall(r" = f32\[\d[\d,]+\]\S* copy\(", program.text)


@pytest.mark.parametrize(
  ("topology", "fsdp", "model"),
  all_and_few(
    [("h100:2x8", 2, 2)],
    [("h100:2x8", 2, 1), ("h100:8", 1, 1), ("h100:8", 2, 1), ("h100:8", 8, 1)],
  ),
)
def test_parameters_are_split_over_machines_and_no_activation_is_gathered(topology, fsdp, model):
  overrides = {"model.width": 128, "model.mlp_dim": 512, "model.heads": 2, "batch_size": 512}
  overrides |= {"mesh.fsdp": fsdp, "mesh.model": model}
  program = compiled(overrides | {"model.attention": "cudnn"}, topology)
  assert (program.devices, program.hosts) == ((16, 2) if "x" in topology else (8, 1))
  assert "all-reduce" in program.collectives
  gathered = re.findall(r"= (\S.*?) all-gather-done\(", program.text)
  assert bool(gathered) == (fsdp > 1)
  tokens = re.compile(r"\b18\b")  # 17, padded to an even number: no axis of a parameter
  assert not [shape for shape in gathered if tokens.search(shape)]


MORE_EVALUATIONS = ("few_shot", "reconstruction", "prediction")


def planned(attention, **changes):
  """The plan of the small model's run, and an evaluation's context of it."""
  config = overridden(SMALL, {"model.attention": attention} | changes)
  run = step_program.planned(config, devices("h100:1"))
  return run, EvalContext(model=run.model, loss=config.loss, reader=run.reader)


def arguments(run, *arrays):
  """Shapes on the devices of a run."""
  place = jax.sharding.NamedSharding(run.mesh, jax.sharding.PartitionSpec())
  return [jax.ShapeDtypeStruct(shape, dtype, sharding=place) for shape, dtype in arrays]


def evaluation_of(attention, kind):
  """A run, the jitted function of an evaluation or prediction of its model, and its arguments."""
  changes = {"objective": Masked()} if kind == "reconstruction" else {}
  run, context = planned(attention, **changes)
  params = run.abstract.params
  batch = run.abstract_batch()
  if kind == "classification":
    return run, context.compiled(classification.make_step, context.loss), (params, batch)
  if kind == "few_shot":
    shapes = [((2, 64), jnp.float32)] * 2 + [((2, 64, 7), jnp.float32), ((2, 7), jnp.float32)]
    names = ("mean", "deviation", "kernel", "bias")
    probes = dict(zip(names, arguments(run, *shapes), strict=True))
    return run, context.compiled(few_shot.make_step, "pre_logits"), (params, probes, batch)
  if kind == "reconstruction":
    first, rows = arguments(run, ((), jnp.int32), ((2,), jnp.int32))
    settings = run.config.objective
    step = context.compiled(reconstruction.make_step, settings.rate, settings.target)
    return run, step, (params, batch, first, rows)
  return run, predict._run, (run.model, params, batch["image"])


@pytest.mark.parametrize(
  ("kind", "attention"),
  all_and_few(
    [("classification", "cudnn")],
    [("classification", "xla"), *((kind, "cudnn") for kind in MORE_EVALUATIONS)],
  ),
)
def test_what_is_done_with_a_model(kind, attention):
  program = compilation.program(*evaluation_of(attention, kind))
  assert ("__cudnn$fmhaSoftmax" in program.text) == (attention == "cudnn")


@pytest.mark.gpu
def test_nearest_neighbours():
  run, _ = planned("xla")
  best = jax.jit(nearest_neighbours.best, static_argnums=2)
  banks = arguments(run, ((512, 64), jnp.float32), ((32, 64), jnp.float32))
  assert compilation.program(run, best, (*banks, 20)).fits


def _name(row):
  return f"{row['recipe']} {row['topology']}"


RATES = pathlib.Path(__file__).with_name("published_rates.csv")


@pytest.mark.gpu
@pytest.mark.parametrize("row", list(csv.DictReader(RATES.read_text().splitlines())), ids=_name)
def test_nobody_was_faster_than_the_bound(row):
  gpus = devices(row["topology"])
  batch = len(gpus) * int(row["batch_per_gpu"])
  config = recipes.resolve(row["recipe"], [f"--config.batch_size={batch}"])
  assert config.data.image_size == int(row["image_size"])
  program = compilation.compile_step(config, gpus)
  parts = breakdown(program.text, known(program.device_kind))
  bound = report.bounds(config, program, parts)["images_per_second_per_device_bound"]
  assert float(row["images_per_second"]) / len(gpus) < bound
