"""Arrays of checkpoints: the same bits on any mesh, from several processes, and for Orbax."""

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import orbax.checkpoint.experimental.v1 as ocp_v1
import pytest
import tensorstore as ts
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from tests.storage import states
from vit_jax.storage import arrays, files

DRAW = np.random.default_rng(0)
VALUES = {
  "params/kernel": (DRAW.normal(size=(16, 8)).astype("float32"), P("fsdp")),
  "params/table": (DRAW.normal(size=(8, 64)).astype("float32"), P()),
  "mu/kernel": (DRAW.normal(size=(8, 16)).astype(jnp.bfloat16), P(None, ("data", "fsdp"))),
  "zeros": (np.zeros((8, 400), "float32"), P("data")),
  "half": (np.ones(3, "float16"), P()),
  "mask": (np.array([True, False]), P()),
  "empty": (np.zeros((0, 3), "float32"), P()),
  "step": (np.int32(7), P()),
}


@pytest.fixture(scope="module")
def made():
  """The arrays on 2 x 4 devices."""
  mesh = states.mesh(2, 4)
  return {k: jax.device_put(v, NamedSharding(mesh, spec)) for k, (v, spec) in VALUES.items()}


@pytest.fixture
def place(tmp_path):
  return files.kvstore(tmp_path / "größe #1" / "state")


def abstract(made, mesh=None):
  """What is wanted: as it was made, or on another mesh."""
  on = lambda x: NamedSharding(mesh, x.sharding.spec) if mesh else x.sharding
  return {k: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=on(x)) for k, x in made.items()}


def parts(made):
  """What `merge` wants."""
  return {name: (made[name].shape, plan.chunk) for name, plan in arrays.plans(made).items()}


def saved(place, made):
  arrays.write(place, 0, arrays.shares(made, arrays.plans(made)))
  arrays.merge(place, 1, parts(made))


@pytest.mark.parametrize("split", [(2, 4), (1, 1), (1, 8), (4, 2)])
@pytest.mark.parametrize("shared", [2**24, 8])  # bytes from which on devices share a part
def test_the_same_bits_come_back_on_any_mesh(place, made, split, shared, monkeypatch):
  monkeypatch.setattr(arrays, "SPLIT", shared)
  saved(place, made)
  wanted = abstract(made, states.mesh(*split))
  found = arrays.read_arrays(place, wanted)
  for name, (value, _) in VALUES.items():
    assert found[name].sharding == wanted[name].sharding
    assert found[name].dtype == value.dtype
    assert np.asarray(found[name]).tobytes() == np.asarray(value).tobytes(), name


def test_whole_arrays_are_read_without_devices(place, made):
  saved(place, made)
  found = arrays.read_here(place, {name: made[name] for name in ("params/kernel", "step")})
  assert sorted(found) == ["params/kernel", "step"]
  assert found["step"] == 7
  assert (found["params/kernel"] == VALUES["params/kernel"][0]).all()
  keys = ts.KvStore.open(place).result().list().result()
  written = [key for key in keys if b"ocdbt.process_0/d/" in key]
  assert len(written) < len(VALUES) / 2  # small arrays share a file; how many depends on the time


@pytest.mark.parametrize(
  ("name", "shape", "dtype", "message"),
  [
    ("params/kernel", (8, 16), "float32", r"params\.kernel"),
    ("params/kernel", (16, 8), "int32", r"params\.kernel"),
    ("absent", (4,), "float32", "absent"),
    ("wide", (4,), "float32", "larger than the array"),  # told before it is read
  ],
)
def test_what_is_not_there_or_another_array_is_an_error(place, made, name, shape, dtype, message):
  mine = arrays.shares(made, arrays.plans(made))
  piece = (slice(0, 4),), np.ones(4, "float32")
  mine["wide"] = arrays.Share((4,), np.dtype("float32"), (8,), [piece])
  arrays.write(place, 0, mine)
  arrays.merge(place, 1, parts(made))
  with pytest.raises(ValueError, match=message):
    arrays.read_here(place, {name: jax.ShapeDtypeStruct(shape, dtype)})


@pytest.mark.parametrize("shared", [2**24, 2**11])
def test_each_part_is_written_once_and_the_devices_write_about_as_much(monkeypatch, shared):
  monkeypatch.setattr(arrays, "SPLIT", shared)
  mesh = states.mesh(2, 4)
  count = 32 if shared == 2**24 else 1  # one large array is shared by all
  made = {
    f"{kind}/{i}": jax.device_put(np.full((64, 64), i, "float32"), NamedSharding(mesh, spec))
    for i in range(count)
    for kind, spec in (("a", P()), ("b", P("fsdp")))
  }
  mine, loads = arrays.shares(made, arrays.plans(made)), dict.fromkeys(mesh.devices.flat, 0)
  assert mine.keys() == made.keys()
  for name, x in made.items():
    covered = np.zeros(x.shape, int)
    for index, piece in mine[name].pieces:
      covered[index] += 1
      assert (piece == np.asarray(x)[index]).all()
    assert (covered == 1).all()
    for _, piece in arrays._mine(x, arrays.plans(made)[name]):
      loads[piece.device] += piece.nbytes
  assert max(loads.values()) <= 1.4 * sum(loads.values()) / 8


@pytest.mark.parametrize(("copies", "processes"), [(64, 8), (8, 8), (6, 1), (4, 8), (12, 5)])
def test_processes_take_turns(copies, processes):
  order = arrays.in_turn(copies, processes)
  assert sorted(order) == list(range(copies))
  if copies % processes == 0:  # copies 0..n are on the first process, and so on
    owners = [number // (copies // processes) for number in order]
    assert owners[:processes] == list(range(processes))


def test_what_several_processes_wrote_is_one_state(place, made, monkeypatch):
  for process in range(4):  # two devices each
    own = {
      name: share._replace(pieces=share.pieces[process::4])
      for name, share in arrays.shares(made, arrays.plans(made)).items()
      if share.pieces[process::4]
    }
    monkeypatch.setattr(arrays, "AT_ONCE", 300)  # several groups
    arrays.write(place, process, own)
  arrays.merge(place, 4, parts(made))
  found = arrays.read_arrays(place, abstract(made))
  assert all((np.asarray(found[k]) == np.asarray(v)).all() for k, (v, _) in VALUES.items())


def test_a_part_that_nobody_wrote_is_an_error_and_not_zeros(place, made):
  mine = arrays.shares(made, arrays.plans(made))
  mine["zeros"] = mine["zeros"]._replace(pieces=mine["zeros"].pieces[:-1])
  arrays.write(place, 0, mine)
  with pytest.raises(ValueError, match="Of zeros, 1 of 2 parts were written"):
    arrays.merge(place, 1, parts(made))
  with pytest.raises(ValueError, match="Of absent, 0 of 1 parts"):
    arrays.merge(place, 1, {"absent": ((4,), (4,))})
  for read in (arrays.read_arrays, arrays.read_here):
    with pytest.raises(ValueError, match="zeros"):
      read(place, abstract(made))


def test_names_that_would_be_one_key_are_refused(made):
  with pytest.raises(ValueError, match="differ in a slash and a dot alone"):
    arrays.plans({"a/b": made["half"], "a.b": made["half"]})


def test_orbax_reads_the_arrays_by_both_of_its_apis(tmp_path, made):
  folder = tmp_path / "state"
  nested = {"params": {"kernel": made["params/kernel"], "table": made["params/table"]}}
  saved(files.kvstore(folder), {k: x for k, x in made.items() if k.startswith("params/")})
  checkpointer = ocp.PyTreeCheckpointer()
  for found in (checkpointer.restore(folder), ocp_v1.load(folder)):
    assert jax.tree.structure(found) == jax.tree.structure(nested)
    for ours, theirs in zip(jax.tree.leaves(nested), jax.tree.leaves(found), strict=True):
      assert np.asarray(ours).tobytes() == np.asarray(theirs).tobytes()
  checkpointer.close()
