"""Programs for TPU slices: figures from the compiler, and two recipes that are compiled."""

import dataclasses
import importlib.util
import json
import re
import sys

import jax
import numpy as np
import pytest

from tests import programs, resolved
from tests.extras.compiled.made import GIB, PROGRAM
from vit_jax import config as c
from vit_jax import models
from vit_jax.config.resolve import resolve
from vit_jax.devices import mesh
from vit_jax.evaluation.evaluations import Evaluations
from vit_jax.extras.compiled import compilation, platform, platforms, program_text, tpus
from vit_jax.extras.experiments import step_program
from vit_jax.learning.optimizers.adam import Adam
from vit_jax.training import run as runs
from vit_jax.training.facts import of_devices
from vit_jax.training.run import OpenedData


def test_what_a_refusal_says():
  said = "total memory required for HLO temporaries ({}) exceeds available HBM (15.48G)."
  assert tpus.refused_bytes(said.format("131.25G")) == int(131.25 * 2**30)
  assert tpus.refused_bytes(said.format("512.00M")) == 2**29
  assert tpus.refused_bytes("another complaint") is None


def test_an_estimate_below_zero_is_none():
  assert compilation.optimal_seconds({"optimal_seconds": 0.025}) == 0.025
  for cost in ({"optimal_seconds": -38996.3}, {}):
    assert compilation.optimal_seconds(cost) is None


# Multiply-adds in a cycle of one device's matrix units: their number times rows times columns.
MULTIPLIED = {
  "TPU v2": 1 * 128**2,
  "TPU v3": 2 * 128**2,
  "TPU v4": 2 * 4 * 128**2,
  "TPU v5 lite": 4 * 128**2,
  "TPU v5": 2 * 4 * 128**2,
  "TPU v6 lite": 4 * 256**2,
}


@pytest.mark.parametrize(("kind", "multiplied"), MULTIPLIED.items())
def test_clocks_agree_with_the_peak_rates(kind, multiplied):
  with pytest.raises(c.RunError, match="'TPU v99' is not known"):
    platform.known("TPU v99")
  clock = platform.known(kind).clock_hz
  assert 2 * multiplied * clock == pytest.approx(platform.known(kind).peak_flops, rel=0.03)


REFUSED = dataclasses.replace(
  PROGRAM, devices=32, groups=32, argument_bytes=4 * GIB, temporary_bytes=60 * GIB, fits=False
)


def configured(**fields):
  """Plain settings, whose mesh is that of the devices."""
  return dataclasses.replace(resolved.config(**fields), mesh=c.Mesh())


def tried(config, program=REFUSED, split=REFUSED):
  """The settings tried for a program that does not fit; `split` is the program with fsdp."""
  made = lambda overrides: program if "accumulation" in overrides else split
  return [overrides for overrides, _ in compilation.smaller(config, program, made)]


def test_remedies_are_settings_that_keep_the_batch():
  config = configured(batch_size=4096)
  found = tried(config)
  remedies = [compilation.overridden(config, overrides) for overrides in found]
  assert all(remedy.batch_size == 4096 for remedy in remedies)
  assert len(remedies) == len(set(map(repr, remedies)))
  # A quarter of 60 GiB is less than the 16 of a core; its half is not.
  parts = [4, 8, 16, 32, 64, 128]
  assert [remedy.accumulation for remedy in remedies] == [*parts, 1, *parts, 128, 128]
  assert [remedy.mesh.fsdp for remedy in remedies] == [1] * 6 + [32] * 9
  assert [remedy.model.remat for remedy in remedies[-3:]] == ["none", "dots", "everything"]
  half = compilation.overridden(config, {"accumulation": 2})
  assert [o["accumulation"] for o in tried(half)[:2]] == [8, 16]
  last = {"accumulation": 128, "mesh.fsdp": 32, "model.remat": "dots"}
  only = {"mesh.fsdp": 32, "accumulation": 128, "model.remat": "everything"}
  assert tried(compilation.overridden(config, last)) == [only]


def test_what_is_too_large_for_any_accumulation_is_split_before_anything_is_computed_twice():
  config = configured(batch_size=64)
  assert tried(config)[:2] == [
    {"mesh.fsdp": 32},
    {"mesh.fsdp": 32, "model.remat": "dots", "accumulation": 2},
  ]
  # What splitting leaves over is divided by accumulation, though before that was not enough.
  smaller = dataclasses.replace(REFUSED, temporary_bytes=20 * GIB)
  both = {"mesh.fsdp": 32, "accumulation": 2}
  assert tried(config, REFUSED, split=smaller)[:2] == [{"mesh.fsdp": 32}, both]


def test_a_state_that_is_too_large_is_split_before_anything_else():
  program = dataclasses.replace(REFUSED, argument_bytes=17 * GIB)
  found = tried(configured(batch_size=4096), program)
  assert found[:2] == [{"mesh.fsdp": 32}, {"mesh.fsdp": 32, "accumulation": 4}]


def test_groups_that_the_config_has_make_room_for_other_ones():
  config = compilation.overridden(configured(batch_size=32), {"mesh.data": 32, "mesh.fsdp": 1})
  remedy = compilation.overridden(config, tried(config)[0])
  assert (remedy.mesh.fsdp, remedy.mesh.data) == (32, c.AUTO)


@pytest.mark.parametrize(("devices", "fsdp"), [(8, 8), (512, 64), (96, 48)])
def test_parameters_are_split_over_as_many_devices_as_divide_the_slice(devices, fsdp):
  program = dataclasses.replace(REFUSED, devices=devices, groups=devices)
  assert tried(configured(batch_size=devices), program)[0] == {"mesh.fsdp": fsdp}


def test_devices_that_compute_the_same_images_are_counted_as_one():
  """8 devices, 2 along "model", share a batch of 20 in 4 groups of 5 images."""
  config = compilation.overridden(configured(batch_size=20), {"mesh.model": 2})
  program = dataclasses.replace(REFUSED, devices=8, groups=4, temporary_bytes=20 * GIB)
  found = tried(config, program, split=program)
  assert found[:2] == [{"accumulation": 5}, {"mesh.fsdp": 4}]
  for overrides in found:
    remedy = compilation.overridden(config, overrides)
    split = dict(batch_size=20, accumulation=remedy.parts)
    assert mesh.make(remedy.mesh, devices=jax.devices(), **split).shape["model"] == 2


SMALL = configured(
  batch_size=16,
  duration=c.Duration(steps=9),
  model=c.Model(name="ViT-Ti/4", depth=2, width=64, mlp_dim=256, heads=4, num_classes=5),
  loss=c.Loss(kind="sigmoid"),
  optimizer=Adam(weight_decay=0.1, clip_norm=1.0),
  data=c.Data(image_size=16),
)


def test_every_gradient_is_reduced_once_and_no_activation_moves():
  """Data-parallel: the reduced arrays are as large as the parameters, plus a few scalars."""
  program = compilation.compile_step(SMALL, jax.devices())
  shapes = jax.eval_shape(
    lambda: models.configured(SMALL.model).init(
      jax.random.key(0), np.zeros((1, 16, 16, 3), np.float32), train=False
    )
  )
  gradients = 4 * sum(x.size for x in jax.tree.leaves(shapes))
  assert program.devices == 8
  assert program.collectives.keys() == {"all-reduce"}
  _, size = program.collectives["all-reduce"]
  assert gradients <= size <= gradients + 64
  assert program.made_from == compilation.step_name(SMALL, jax.devices())
  dropped = compilation.overridden(SMALL, {"model.dropout": 0.1})
  assert program.made_from != compilation.step_name(dropped, jax.devices())


WIDER = compilation.overridden(SMALL, {"batch_size": 88, "model.representation_layer": True})
BIT = dataclasses.replace(
  WIDER,
  model=resolved.model(name="R50x1", stages=(1, 1), width=32, num_classes=5),
  data=resolved.data(image_size=32),
)


@pytest.mark.parametrize(
  "config",
  [
    WIDER,
    compilation.overridden(WIDER, {"model.scan": True, "model.compute_dtype": "bfloat16"}),
    BIT,
  ],
)
def test_where_parameters_are_split_they_are_gathered_and_no_activation_moves(config):
  config = resolve(compilation.overridden(config, {"mesh.fsdp": 2}), of_devices())
  source = step_program.DatasetSpec(length=9, class_names=tuple("abcde"), multi_label=True)
  made = runs.make(config, OpenedData(source, Evaluations(), ()))
  text = made.update.lower(made.abstract, made.abstract_batch()).compile().as_text()
  kinds = "|".join(program_text.COLLECTIVES)
  moved = re.findall(rf"= (\S.*?) ({kinds})(?:-start)?\(", text)
  assert any(kind == "all-gather" for _, kind in moved)
  # 88 examples, 11 on each device: a factor that no axis of a parameter has.
  shapes = [shape for what, _ in moved for shape in re.findall(r"\[([\d,]+)\]", what)]
  assert not [shape for shape in shapes if any(int(n) % 11 == 0 for n in shape.split(","))]


needs_libtpu = pytest.mark.skipif(
  importlib.util.find_spec("libtpu") is None, reason="libtpu, the TPU compiler, is not installed"
)


@needs_libtpu
@pytest.mark.parametrize("topology", ["v3:4x4", "v4:2x2x4", "v5e:4x4", "v6e:8x8"])
@pytest.mark.parametrize(("fsdp", "model"), [(1, 1), (4, 1), (2, 2)])
def test_every_host_of_a_slice_feeds_rows_of_its_own(monkeypatch, topology, fsdp, model):
  monkeypatch.setenv("TPU_SKIP_MDS_QUERY", "1")
  devices = platforms.devices_of(topology)
  made = mesh.make(c.Mesh(fsdp=fsdp, model=model), batch_size=1024, accumulation=1, devices=devices)
  hosts = sorted(mesh.processes(made))
  assert [mesh.rows_of(made, 1024, host) for host in hosts] == list(range(len(hosts)))
  assert len(hosts) > 1


@pytest.mark.parametrize(
  "topology",
  ["", "tpu", "v3", "v3:", "v3:0x0", "v3:4x-4", "v3:4x4 ", "v3:4", "v3-512", "v3:2x2x2x2"],
)
def test_what_is_no_topology_is_refused_before_the_library_sees_it(topology):
  with pytest.raises(c.ConfigError, match="named KIND:AxB or KIND:AxBxC chips of TPUs"):
    platforms.devices_of(topology)


# Whether a program for a TPU writes float32 logits down: with our attention, and with JAX's.
ATTENTION = r"""
import jax
import jax.numpy as jnp

from vit_jax.extras.compiled import platforms
from vit_jax.models.attention import attend

device = jax.sharding.SingleDeviceSharding(platforms.devices_of("v3:2x2")[0])
x = jax.ShapeDtypeStruct((8, 197, 12, 64), jnp.bfloat16, sharding=device)
ours = lambda q, k, v: attend(q, k, v, None)
plain = lambda q, k, v: jax.nn.dot_product_attention(q, k, v, implementation="xla")
for function in (ours, plain):
  loss = lambda *a: (function(*a).astype(jnp.float32) ** 2).sum()
  text = jax.jit(jax.grad(loss, (0, 1, 2))).lower(x, x, x).compile().as_text()
  results = [line.partition(" fusion(")[0] for line in text[text.index("\nENTRY") :].splitlines()]
  print(any("f32[8,12,197,197]" in result for result in results))
"""


@needs_libtpu
def test_attention_writes_no_logits_down():
  """JAX's gradient of attention keeps (B, heads, N, N) in float32; ours never does."""
  settings = dict(TPU_SKIP_MDS_QUERY="1", ALLOW_MULTIPLE_LIBTPU_LOAD="1", XLA_FLAGS="")
  result = programs.run([sys.executable, "-c", ATTENTION], **settings)
  assert result.stdout.split() == ["False", "True"], result.stderr


@needs_libtpu
def test_gradients_of_parts_are_reduced_over_devices_once():
  command = [sys.executable, "tools/compile_check.py", "--format=json", "--topology=v3:2x2"]
  command += ["--config=configs/vit_digits.py", "--config.model.depth=1", "--breakdown"]
  moved = []
  for parts in (1, 4):
    result = programs.run([*command, f"--config.accumulation={parts}"], XLA_FLAGS="")
    assert result.returncode == 0, result.stderr
    row = json.loads(result.stdout)
    moved.append(row["collectives"])
    check_breakdown(row, accumulation=parts > 1)
  assert moved[0].keys() == moved[1].keys() == {"all-reduce"}
  whole, parts = (one["all-reduce"] for one in moved)
  assert parts["count"] == whole["count"]
  assert parts["bytes"] == pytest.approx(whole["bytes"], abs=64)  # but for single numbers


def check_breakdown(row, *, accumulation):
  """The compiler that is installed names instructions as those of test_breakdown.py."""
  seconds = {part["category"]: part["seconds"] for part in row["breakdown"]}
  whole = row["step_seconds_estimate"]
  assert sum(seconds.values()) == pytest.approx(whole, rel=1e-9)
  assert seconds.get("other", 0) < 0.005 * whole
  assert ("accumulation" in seconds) == accumulation
  assert {"weight gradients", "attention, backward", "gradient norm"} <= seconds.keys()
