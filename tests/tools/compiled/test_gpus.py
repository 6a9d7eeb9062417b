"""What a GPU would run is compiled for GPUs that are not there, at small sizes."""

import functools
import importlib.util
import re

import jax
import jax.numpy as jnp
import pytest

from compiled import compilation, platforms
from compiled.breakdown import breakdown
from compiled.compilation import overridden
from compiled.platform import known
from vit_jax import config as c
from vit_jax.evaluation import (
  classification,
  few_shot,
  nearest_neighbours,
  reconstruction,
)
from vit_jax.evaluation.spec import EvalContext
from vit_jax.experiments import step_program
from vit_jax.inference import predict
from vit_jax.learning.masked_patches import Masked
from vit_jax.learning.optimizers.adam import Adam

pytestmark = pytest.mark.skipif(
  importlib.util.find_spec("jax_cuda13_plugin") is None, reason="the GPU compiler is not installed"
)

SMALL = c.Config(
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
  "ViT in float32": {"model.compute_dtype": "float32", "model.dropout": 0.1},
  "accumulation, scan, remat, MixUp": {
    "accumulation": 2,
    "model.scan": True,
    "model.depth": 2,
    "model.remat": "dots",
    "model.attention": "cudnn",
    "objective.mixup": 0.2,
  },
  "ResNet": {
    "model": c.Model(name="R50x1", stages=(1,), width=64, num_classes=7, compute_dtype="bfloat16"),
    "data.image_size": 32,
  },
  "axial": {"model.name": "Axial-ViT-B/4", "model.attention": "cudnn"},
  "masked patches": {"objective": Masked(), "model.attention": "cudnn"},
}


@functools.cache
def devices(topology):
  return platforms.devices_of(topology)


def compiled(overrides, topology="h100:1"):
  """The training step of the small model, with other settings."""
  return compilation.compile_step(overridden(SMALL, overrides), devices(topology))


@pytest.mark.parametrize("name", MODELS)
def test_every_kind_of_model_trains(name):
  program = compiled(MODELS[name])
  assert program.fits
  assert sum(part.flops for part in breakdown(program.text, known(program.device_kind))) > 0


@pytest.mark.parametrize("side", [16, 28, 56, 64])  # 17, 50, 197 and 257 tokens
def test_cudnns_attention_trains_with_any_number_of_tokens(side):
  program = compiled({"model.attention": "cudnn", "data.image_size": side})
  assert "__cudnn$fmhaSoftmaxBackward" in program.text


def test_products_are_those_of_our_own_count_and_memory_holds_state_and_batch():
  """XLA's attention computes the logits twice in the forward pass, and images have no gradient."""
  overrides = {"data.image_size": 32, "model.width": 128, "model.mlp_dim": 512, "model.pool": "gap"}
  config, program, tokens = overridden(SMALL, overrides), compiled(overrides), 64
  parts = breakdown(program.text, known(program.device_kind))
  again = 2 * 16 * tokens**2 * 128
  embedding = 2 * 16 * 64 * (4 * 4 * 3) * 128
  found = sum(part.flops for part in parts) - again + embedding
  assert found == pytest.approx(compilation.step_flops(config), rel=0.01)
  moved = sum(part.moved_bytes for part in parts)
  assert sum(part.moved_bytes for part in parts if part.category == "other") < 0.01 * moved
  run = step_program.planned(config, devices("h100:1"))
  state = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(run.abstract))
  assert program.peak_bytes >= state + 16 * 32 * 32 * 3


@pytest.mark.parametrize(("topology", "fsdp"), [("h100:8", 1), ("h100:8", 8), ("h100:2x8", 2)])
def test_parameters_are_split_over_machines_and_no_activation_moves(topology, fsdp):
  overrides = {"mesh.fsdp": fsdp, "model.width": 128, "model.mlp_dim": 512, "batch_size": 512}
  program = compiled(overrides | {"model.attention": "cudnn"}, topology)
  assert (program.devices, program.hosts) == ((16, 2) if "x" in topology else (8, 1))
  assert "all-reduce" in program.collectives
  gathered = re.findall(r"= (\S.*?) all-gather-done\(", program.text)
  assert bool(gathered) == (fsdp > 1)
  tokens = re.compile(r"\b18\b")  # 17, padded to an even number: no axis of a parameter
  assert not [shape for shape in gathered if tokens.search(shape)]


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
  batch = step_program.abstract_batch(run)
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
  [
    ("classification", "xla"),
    *((kind, "cudnn") for kind in ("classification", "few_shot", "reconstruction", "prediction")),
  ],
)
def test_what_is_done_with_a_model(kind, attention):
  program = compilation.program(*evaluation_of(attention, kind))
  assert ("__cudnn$fmhaSoftmax" in program.text) == (attention == "cudnn")


def test_nearest_neighbours():
  run, _ = planned("xla")
  best = jax.jit(nearest_neighbours.best, static_argnums=2)
  banks = arguments(run, ((512, 64), jnp.float32), ((32, 64), jnp.float32))
  assert compilation.program(run, best, (*banks, 20)).fits
