"""Starting a run from weights: what is taken, what is new, what is refused."""

import dataclasses

import chex
import jax
import numpy as np
import pytest

from tests import modules, resolved
from tests.learning import steps
from tests.weights import families
from vit_jax import config as c
from vit_jax import models, weights
from vit_jax.devices import mesh
from vit_jax.extras.formats import timm
from vit_jax.learning import objective as objectives
from vit_jax.learning import optim, train_step
from vit_jax.learning.classification import Classification
from vit_jax.models.stacking import unstack_blocks
from vit_jax.storage.tree import flatten
from vit_jax.training import init_from
from vit_jax.weights import safetensors
from vit_jax.weights.card import Card
from vit_jax.weights.resizing import resize_table

NAMES = tuple("abcde")
VIT = dict(name="ViT-B/4", depth=2, width=32, mlp_dim=64, heads=2)


@pytest.fixture
def source(tmp_path):
  path = tmp_path / "w.npz"
  weights.save(path, families.params("vit"))
  return path


def config(source, side=16, **model):
  return resolved.config(
    init_from=str(source),
    model=c.Model(**(VIT | dict(num_classes=5) | model)),
    data=c.Data(image_size=side),
  )


def read(config, names=NAMES):
  objective = objectives.of_config(config)
  return init_from.read_initial(config, objective, names)


@pytest.mark.parametrize("rule", ["", "bicubic_offset"])
def test_positions_are_resized_by_the_rule_of_the_weights(tmp_path, rule):
  path, params = tmp_path / "w.npz", families.params("vit")
  weights.write(path, weights.Weights(params, Card(16, position_resizing="bicubic")))
  asked = dataclasses.replace(config(path, side=24), position_resizing=rule)
  table = "Transformer/posembed_input/pos_embedding"
  expected = resize_table(flatten(params)[table], (4, 4), (6, 6), before=1, rule=rule or "bicubic")
  np.testing.assert_array_equal(flatten(read(asked).params)[table], expected)


def started(config, *, fsdp=1):
  """A fresh state, and the same state with the weights put into it."""
  objective = Classification(models.configured(config.model))
  optimizer = optim.make(config.optimizer)
  devices = mesh.make(c.Mesh(fsdp=fsdp), batch_size=8, accumulation=1)

  def init():
    size = config.data.image_size
    return train_step.init_state(objective, optimizer, seed=0, image_size=size, with_ema=True)

  fresh = steps.created(init, train_step.abstract_state(init, devices))
  loaded = read(config, NAMES[: config.model.num_classes])
  return fresh, init_from.put(loaded, fresh, objective, optimizer, ".*")


@pytest.mark.parametrize("scan", [False, True])
@pytest.mark.parametrize("fsdp", [1, 8])
def test_parameters_and_their_average_are_those_of_the_file(source, scan, fsdp):
  fresh, put = started(config(source, scan=scan), fsdp=fsdp)
  expected = families.params("vit")
  for tree in (put.params, put.ema):
    families.assert_same_bits(unstack_blocks(jax.device_get(tree)), expected)
    shardings = jax.tree.map(lambda x: x.sharding, tree)
    assert shardings == jax.tree.map(lambda x: x.sharding, fresh.params)
  arrays = jax.tree.leaves((put.params, put.ema))
  buffers = [x.addressable_shards[0].data.unsafe_buffer_pointer() for x in arrays]
  assert len(set(buffers)) == len(buffers)  # donation needs buffers of their own


def test_a_new_head_starts_as_any_head_does(source):
  asked = config(source, num_classes=7, head_bias=-3.0)
  fresh, put = started(asked)
  for name in ("kernel", "bias"):
    np.testing.assert_array_equal(put.params["head"][name], fresh.params["head"][name])
  assert (np.asarray(put.params["head"]["bias"]) == -3).all()
  np.testing.assert_array_equal(put.params["cls"], families.params("vit")["cls"])
  named = dataclasses.replace(asked, class_names="data")
  with pytest.raises(c.ConfigError, match=r"'data' names the .* of 5 classes and the data 7"):
    read(named, tuple("abcdefg"))


@pytest.mark.parametrize(
  ("change", "message"),
  [
    (dict(depth=1), r"w\.npz: these weights are not of a ViT-B/4 .*: depth is 2 there and 1 here;"),
    (dict(width=64), r"width is 32 there and 64 here; set config\.model\.name to their"),
    (dict(name="ViT-B/8"), r"not of a ViT-B/8 .*: patch is 4 there and 8 here;"),
    (dict(pool="gap"), r"pool is class_token there and gap here;"),
    (dict(representation_layer=True), r"pre_logits/kernel \(32, 32\) is missing"),
    (None, r"not of a R50x1 .*: they are a ViT there and a ResNet"),
  ],
)
def test_what_does_not_fit_is_wrong_usage(source, change, message):
  resnet = resolved.config(init_from=str(source), model=c.Model(name="R50x1", num_classes=5))
  asked = resnet if change is None else config(source, **change)
  with pytest.raises(c.ConfigError, match=r"config\.init_from=.*" + message):
    read(asked)
  source.unlink()
  with pytest.raises(c.ConfigError, match=r"config\.init_from=.*w\.npz does not exist"):
    read(asked)


def test_what_is_guessed_of_a_model_gives_way_to_settings_that_are_given(tmp_path):
  """A file of timm alone does not tell its activation. What rules gave is not given."""
  module = models.create(**VIT | dict(num_classes=5, width=64))
  params = modules.parameters(module, np.zeros((1, 16, 16, 3), np.float32), train=False)
  path = tmp_path / "timm.safetensors"
  arrays = {name: np.ascontiguousarray(x) for name, x in timm.to_timm(params).items()}
  safetensors.save_arrays(path, arrays, {})
  given = config(path, width=64, activation="quick_gelu", norm_epsilon=1e-5)
  found = read(given)
  families.assert_same_bits(found.params, params)
  ruled = dataclasses.replace(config(path, width=64), derived=("model.activation",))
  with pytest.raises(c.ConfigError, match=r"activation is gelu there and gelu_tanh here;"):
    read(ruled)
  known = tmp_path / "known.safetensors"  # with its module, whose images alone are guessed
  weights.save(known, params, module)
  assert weights.read(known).card.guessed
  with pytest.raises(c.ConfigError, match=r"activation is gelu_tanh there and quick_gelu here;"):
    read(dataclasses.replace(given, init_from=str(known)))


@pytest.mark.parametrize(
  ("there", "here", "said", "dropped", "new"),
  [
    # The same arrays, such as those of DINOv3 and of timm's models for it.
    (dict(pool="gap_beside_token"), dict(pool="class_token"), "pool is gap_beside_token", "", ""),
    (dict(), dict(pool="gap_beside_token"), "pool is class_token there", "", ""),
    (dict(pool="map"), dict(pool="map_of_all"), "pool is map there and map_of_all", "", ""),
    (dict(pool="map"), dict(pool="gap"), "pool is map there and gap here", "MAPHead_0/", ""),
    (dict(pool="gap"), dict(pool="map"), "pool is gap there and map here", "", "MAPHead_0/"),
    (
      dict(pool="gap", final_norm="pooled"),
      dict(pool="gap"),
      "final_norm is pooled there and tokens here",
      "pooled_norm/",
      "Transformer/encoder_norm/",
    ),
  ],
)
def test_pooling_is_that_of_the_run_where_it_has_the_same_tokens(
  tmp_path, there, here, said, dropped, new
):
  """Whether or not a card tells how the weights are pooled; what is new must be trained."""
  module = models.create(**VIT | dict(num_classes=5) | there)
  params = modules.parameters(module, np.zeros((1, 16, 16, 3), np.float32), train=False)
  path = tmp_path / "w.npz"
  kept = {name: x for name, x in flatten(params).items() if not name.startswith(dropped or " ")}
  weights.write(path, weights.Weights(params, None))
  chex.assert_trees_all_equal(flatten(read(config(path, **here)).params), kept)
  card = Card(16, model=models.settings_of(module))
  weights.write(path, weights.Weights(params, card))
  found = read(config(path, **here))
  assert f"  pooling  {said}" in found.report
  chex.assert_trees_all_equal(flatten(found.params), kept)
  wanted = config(path, **here)
  shapes = objectives.initial_shapes(objectives.of_config(wanted), 16)
  others = {*flatten(shapes)} - {*flatten(found.params)}
  assert bool(others) == bool(new)
  assert all(name.startswith(new) for name in others)
  init_from.check_trained(others, ".*")
  init_from.check_trained(["lora/x/a/kernel", "head/bias", "pooled_norm/scale"], "head/kernel")
  init_from.check_trained(others, f"head/.*|{new}.*")
  if "MAPHead" in new:  # norms begin without effect
    message = rf"config\.init_from has no '{new}.*\|{new}\.\*', or keep the model of the weights"
    with pytest.raises(c.ConfigError, match=message):
      init_from.check_trained(others, "head/.*")


def carded(tmp_path, *names):
  """Weights whose card names their classes."""
  path, known = tmp_path / "named.npz", Card(image_size=16, class_names=names)
  weights.write(path, weights.Weights(families.params("vit"), known))
  return path


def test_a_head_goes_by_the_names_of_its_classes(tmp_path, source):
  head = families.params("vit")["head"]
  report = read(config(source)).report
  assert "classes  not named by the weights" in report
  assert "--config.new_head=True takes a new head" in report
  same = read(config(carded(tmp_path, *NAMES)))
  np.testing.assert_array_equal(same.params["head"]["kernel"], head["kernel"])
  assert "classes  those of the data, by name" in same.report
  moved = read(config(carded(tmp_path, *"badce"), scan=True))
  for name in ("kernel", "bias"):
    np.testing.assert_array_equal(moved.params["head"][name], head[name][..., [1, 0, 3, 2, 4]])
  assert "moved    head/kernel  by the names of classes" in moved.report
  assert "4 of the head's 5 outputs were moved" in moved.report


def test_a_head_of_other_classes_is_refused_or_new(tmp_path):
  path = carded(tmp_path, "eight", "five", "four", "nine", "one")
  message = r"class 0 is 'eight' there and 'a' in the data\. Take a new head .*class_names=FILE"
  with pytest.raises(c.ConfigError, match=message):
    read(config(path))
  new = read(dataclasses.replace(config(path), new_head=True))
  assert "head" not in new.params
  assert "  classes  " not in new.report
  fewer = read(config(path, num_classes=3), NAMES[:3])
  assert "new      head/kernel  in the file (32, 5)" in fewer.report
  told = read(dataclasses.replace(config(path), class_names="data"))
  families.assert_same_bits(told.params["head"], families.params("vit")["head"])
  assert "config.class_names=data" in told.report
