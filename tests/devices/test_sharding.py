"""How parameters are split over the axes of a mesh, by rules."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import PartitionSpec as P

from vit_jax import config as c
from vit_jax import models
from vit_jax.devices import mesh as meshes
from vit_jax.devices.mesh import LARGEST
from vit_jax.extras.report import messages
from vit_jax.storage.tree import flatten

SIDE = 32


def mesh_of(fsdp, model=1):
  count = 8 // (fsdp * model)
  return meshes.make(c.Mesh(fsdp=fsdp, model=model), batch_size=8 * count, accumulation=1)


def spec(shape, fsdp, model=1, axes=LARGEST):
  return meshes.spec("kernel", shape, axes, dict(fsdp=fsdp, model=model))


@pytest.mark.parametrize(
  ("shape", "sizes", "axes", "expected"),
  [
    ((768, 12, 64), (4, 1), LARGEST, P("fsdp", None, None)),
    ((24, 1024, 4096), (8, 1), LARGEST, P(None, None, "fsdp")),
    ((1, 197, 768), (8, 1), LARGEST, P(None, None, "fsdp")),
    ((768, 1001), (8, 1), LARGEST, P("fsdp", None)),
    # A rule may say which dimension fsdp splits.
    ((4, 6), (2, 1), ("fsdp", None), P("fsdp", None)),
    ((64, 1024), (2, 2), ("fsdp", "model"), P("fsdp", "model")),
  ],
)
def test_parameters_are_split_along_their_longest_divisible_axis(shape, sizes, axes, expected):
  assert spec(shape, *sizes, axes) == expected


AXES = st.lists(st.sampled_from([None, "model"]), max_size=2).map(tuple)


@given(
  st.lists(st.integers(1, 500), min_size=2, max_size=4), *[st.sampled_from([1, 2, 4])] * 2, AXES
)
def test_each_axis_splits_one_dimension_that_it_divides(shape, fsdp, model, axes):
  axes = axes if axes.count("model") < 2 else LARGEST
  wanted = [None] * (len(shape) - len(axes)) + list(axes)
  if any(axis and size % model for size, axis in zip(shape, wanted, strict=True)):
    with pytest.raises(c.ConfigError, match=r"config\.mesh\.model=\d does not divide dimension"):
      spec(tuple(shape), fsdp, model, axes)
    return
  found = spec(tuple(shape), fsdp, model, axes)
  found = [*found] + [None] * (len(shape) - len(found))
  sizes = dict(fsdp=fsdp, model=model)
  assert all(size % sizes[axis] == 0 for size, axis in zip(shape, found, strict=True) if axis)
  assert [axis for axis in found if axis == "model"] == ["model"] * (model > 1) * ("model" in axes)
  free = [n for n, axis in zip(shape, found, strict=True) if axis != "model" and n % fsdp == 0]
  split = fsdp > 1 and np.prod(shape) >= meshes.MIN_SHARDED_SIZE and free
  by_fsdp = [n for n, axis in zip(shape, found, strict=True) if axis == "fsdp"]
  assert by_fsdp == ([max(free)] if split else [])


def test_with_one_device_along_model_the_rules_change_nothing():
  module = models.create("ViT-Ti/16")
  params = module.parameter_shapes(SIDE)
  by_rules = meshes.shardings(mesh_of(8), params, params, module.sharding)
  assert by_rules == meshes.shardings(mesh_of(8), params, params)


@pytest.mark.parametrize("scan", [False, True])
def test_heads_and_channels_of_a_vit_are_split_over_model(scan):
  module = models.create("ViT-S/16", depth=2, scan=scan, pool="map")
  params = module.parameter_shapes(SIDE)
  found = flatten(meshes.shardings(mesh_of(2, 2), params, params, module.sharding))
  block = "Transformer/encoderblock" if scan else "Transformer/encoderblock_1"
  first = (None,) if scan else ()
  attention = f"{block}/MultiHeadDotProductAttention_1"
  for place, before in ((attention, first), ("MAPHead_0/MultiHeadDotProductAttention_0", ())):
    for name in ("query", "key", "value"):
      assert found[f"{place}/{name}/kernel"].spec == P(*before, "fsdp", "model", None)
      assert found[f"{place}/{name}/bias"].spec == P(*before, "model", None)
    assert found[f"{place}/out/kernel"].spec == P(*before, "model", None, "fsdp")
    assert found[f"{place}/out/bias"].spec == P()
  for place, before in ((f"{block}/MlpBlock_3", first), ("MAPHead_0/MlpBlock_0", ())):
    assert found[f"{place}/Dense_0/kernel"].spec == P(*before, "fsdp", "model")
    assert found[f"{place}/Dense_0/bias"].spec == P(*before, "model")
    assert found[f"{place}/Dense_1/kernel"].spec == P(*before, "model", "fsdp")
  assert found["head/kernel"].spec == P(None, "fsdp")


def test_moments_averages_and_what_an_objective_carries_follow_their_parameter():
  rules = ((".*/kernel", ("model", None)), (".*", LARGEST))
  params = {
    "a": {"kernel": jnp.zeros((4, 6)), "bias": jnp.zeros(6)},
    "b": {"kernel": jnp.zeros((6, 4))},
  }
  moments = optax.adamw(1e-3).init({"a": params["a"], "b": None})
  other = {"centre": {"kernel": jnp.zeros((6, 4))}, "b": {"kernel": jnp.zeros((8, 4))}}
  state = dict(params=params, moments=moments, extra={"teacher": params, "other": other})
  found = meshes.shardings(mesh_of(2, 2), state, params, rules)
  by_model = {
    jax.tree_util.keystr(path)
    for path, x in jax.tree_util.tree_leaves_with_path(found)
    if "model" in x.spec
  }
  a, b = "['a']['kernel']", "['b']['kernel']"
  assert by_model == {
    *(f"['params']{name}" for name in (a, b)),
    *(f"['moments'][0].{moment}{a}" for moment in ("mu", "nu")),
    *(f"['extra']['teacher']{name}" for name in (a, b)),
  }


@pytest.mark.parametrize(
  ("rules", "message"),
  [
    ((("x.*", LARGEST),), r"no sharding rule matches the parameter kernel;"),
    ((("kernel", ("model",) * 3),), r"gives the axes .* to the parameter kernel of shape \(4, 6\)"),
    ((("kernel", ("heads", None)),), r"each by fsdp or model, once, or None"),
    ((("kernel", ("model", "fsdp")),), r"config\.mesh\.fsdp=4 does not divide dimension 1 .* of 6"),
    ((("kernel", ("model", "model")),), r"each by fsdp or model, once"),
    (meshes.ALL_LARGEST, r"config\.mesh\.model=2 splits none of the parameters"),
  ],
)
def test_rules_that_do_not_suit(rules, message):
  params = {"kernel": np.zeros((4, 6))}
  with pytest.raises(c.ConfigError, match=message):
    meshes.shardings(mesh_of(4, 2), params, params, rules)


def test_the_first_holder_of_each_share():
  mesh = mesh_of(2, 2)
  assert meshes.holders(mesh, P()).tolist() == [0] * 8
  assert meshes.holders(mesh, P(None, "fsdp")).tolist() == [0, 0, 2, 2] * 2
  assert meshes.holders(mesh, P("model")).tolist() == [0, 1] * 4
  assert meshes.holders(mesh, P("fsdp", "model")).tolist() == [0, 1, 2, 3] * 2
  assert meshes.holders(mesh, P(("data", "fsdp"))).tolist() == [0, 0, 2, 2, 4, 4, 6, 6]


def described(shapes, fsdp):
  arrays = {name: jax.ShapeDtypeStruct(shape, np.float32) for name, shape in shapes.items()}
  found = meshes.shardings(mesh_of(fsdp), arrays, arrays)
  return {
    name: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=found[name]) for name, x in arrays.items()
  }


def test_table_of_shardings_and_large_parameters_that_cannot_be_split():
  *lines, total, each = meshes.parameter_table(
    described({"kernel": (64, 1024), "bias": (64,)}, 4)
  ).splitlines()
  cells = [[field.strip() for field in line.split("|")[1:-1]] for line in lines if "|" in line]
  assert cells[1:] == [
    ["bias", "(64,)", "float32", "64", "()"],
    ["kernel", "(64, 1024)", "float32", "65,536", "(None, 'fsdp')"],
  ]
  assert total == "Total: 65,600 -- 262,400 bytes"
  assert each == "On each device: 65,792 bytes"  # a quarter of the kernel, and the bias
  shapes = {"kernel": (130, 130), "wide": (130, 132), "bias": (130,), "deep": (3, 90, 90)}
  for fsdp, named in ((4, ["kernel", "deep"]), (2, []), (1, [])):
    arrays = described(shapes, fsdp)
    assert meshes.unsplit(arrays, fsdp) == named
    run = types.SimpleNamespace(mesh=mesh_of(fsdp), abstract=types.SimpleNamespace(params=arrays))
    said = f"fsdp={fsdp} does not split {len(named)} large parameter(s), such as kernel"
    assert (said in messages.advice_on_fsdp(run)) == bool(named)
