"""Which parameters are scored, and which are refused in one sentence."""

import dataclasses
import functools
import json
import pathlib
import types

import numpy as np
import pytest

import vit_jax
from tests import resolved
from tests.weights import families
from vit_jax import config as c
from vit_jax import models, weights
from vit_jax.config.fields import is_auto
from vit_jax.config.resolve import left, resolve, rules_of, value_of, with_value
from vit_jax.data import sources
from vit_jax.data.datasets import NamedDataset
from vit_jax.evaluation import evaluate, evaluated_model
from vit_jax.evaluation.classification import Classification, LabelledSet
from vit_jax.evaluation.evaluations import Evaluations
from vit_jax.evaluation.nearest_neighbours import Nearest
from vit_jax.inference.model import of_weights
from vit_jax.models.stacking import unstack_blocks
from vit_jax.storage.tree import flatten
from vit_jax.training import facts
from vit_jax.weights.card import Card
from vit_jax.weights.fit import resize_table

MODEL = c.Model(name="ViT-B/4", depth=2, width=32, mlp_dim=64, heads=2)
NOWHERE = pathlib.Path("/none-such")


NUMBERS = tuple("01234")


def saved(tmp_path, params, name="w.npz", **card):
  known = Card(**(dict(image_size=16, class_names=NUMBERS) | card))
  weights.write(tmp_path / name, weights.Weights(params, known))
  return str(tmp_path / name)


def data(classes=0):
  """A set of images with this number of classes, to score the head on; 0: no set."""
  if not classes:
    return Evaluations()
  source = sources.open_source(f"synthetic:{classes}")
  named = NamedDataset("config.evaluate.set", Classification(f"synthetic:{classes}"), source)
  return Evaluations((("set", LabelledSet(named, None)),))


def configured(path, **changes):
  """Settings of an evaluation that name the model and the size."""
  return resolved.evaluation(
    init_from=path, **(dict(model=MODEL, data=c.Data(image_size=16)) | changes)
  )


def unnamed(path, resize=c.AUTO, **changes):
  """Settings that take the model and the preparation of images from the weights."""
  images = c.Data(image_size=c.AUTO, evaluate_resize=resize)
  return configured(path, **(dict(model=c.Model(), data=images) | changes))


def scored(config, evaluations, folder, named=frozenset(), *, average=True, devices=()):
  known = facts.of_devices(devices)
  return evaluated_model.read_evaluated(config, evaluations, folder, named, known, average=average)


def read(path, classes=0, **model):
  config = configured(path, model=dataclasses.replace(MODEL, **model))
  return scored(config, data(classes), NOWHERE)


@pytest.mark.parametrize("scan", [False, True])
@pytest.mark.parametrize("family", ["vit", "representation"])
def test_parameters_are_those_of_the_file(tmp_path, family, scan):
  """The head and the representation layer come from the weights, not from the config."""
  path = saved(tmp_path, families.params(family))
  for classes in (0, 5):
    result = read(path, classes, scan=scan)
    families.assert_same_bits(unstack_blocks(result.params), families.params(family))
    assert result.settings.model.num_classes == 5
    assert result.model.representation_layer == (family == "representation")
    assert result.model.scan == scan
    assert result.origin == {"weights": path, "average": False}


def test_a_run_is_scored_by_its_own_names(tmp_path, monkeypatch):
  """Its `class_names` named the head of the weights that it began from; another file counts."""
  for name in ("first", "other"):
    (tmp_path / name).write_text("4 3 2 1 0".replace(" ", "\n"))
  began = configured("w.npz", class_names=str(tmp_path / "first"))
  card = Card(image_size=16, class_names=NUMBERS)
  run = weights.Weights(families.params("vit"), card, c.to_dict(began))
  monkeypatch.setattr(evaluated_model.checkpoint, "available", lambda folder: [7])
  monkeypatch.setattr(evaluated_model.weights, "of_run", lambda *_: (pathlib.Path("7"), run))
  given = dataclasses.replace(began, class_names=str(tmp_path / "other"))
  for config, names in ((began, NUMBERS), (given, NUMBERS[::-1])):
    assert scored(config, data(5), NOWHERE).head.names == names


OF_RUN = {
  "model.compute_dtype": "bfloat16",
  "model.scan": True,
  "loss.kind": "sigmoid",
  "loss.label_smoothing": 0.1,
  "loss.over_classes": "mean",
}


@pytest.mark.parametrize("named", [None, *OF_RUN])
def test_loss_and_type_are_those_of_the_run_where_the_command_line_is_silent(named):
  run = resolved.config(model=dataclasses.replace(MODEL, num_classes=5))
  for key, value in OF_RUN.items():
    run = with_value(run, key, value)
  card = Card(image_size=16, class_names=NUMBERS)
  loaded = of_weights(weights.Weights(families.params("vit"), card, c.to_dict(run)))
  of_user = c.Model(compute_dtype="float32", attention="cudnn")
  asked = resolved.evaluation(model=of_user, loss=c.Loss("softmax"))
  found = evaluated_model.as_trained(asked, frozenset([named]), loaded)
  for key, value in OF_RUN.items():
    assert value_of(found, key) == (value_of(asked, key) if key == named else value), key
  assert found.model.num_classes == 5
  assert found.model.attention == c.AUTO  # the run's settings may be for other devices
  given = evaluated_model.as_trained(asked, frozenset(["model.attention"]), loaded)
  assert given.model.attention == "cudnn"


def test_position_embeddings_are_resized(tmp_path):
  path = saved(tmp_path, families.params("vit"))
  config = resolved.evaluation(init_from=path, model=MODEL, data=c.Data(image_size=24))
  table = scored(config, data(), NOWHERE).params["Transformer"]["posembed_input"]
  assert table["pos_embedding"].shape == (1, 37, 32)


def test_weights_without_a_head_do_for_features_alone(tmp_path):
  params = families.params("vit")
  del params["head"]
  np.savez(tmp_path / "w.npz", **flatten(params))
  path = str(tmp_path / "w.npz")
  assert read(path).params["head"]["kernel"].shape == (32, 1)
  with pytest.raises(c.ConfigError, match="these weights have no head, so"):
    read(path, 5)


@pytest.mark.parametrize(
  ("family", "model", "message"),
  [
    ("vit", dict(name="ViT-B/8"), r"not of a ViT-B/8 .*: patch is 4 there and 8 here;"),
    ("vit", dict(depth=3, pool="gap"), r"depth is 2 there and 3 here; pool is class_token there"),
    ("gap", {}, r"pool is gap there and class_token here"),
    ("2d", {}, r"positions is 2d there and 1d here"),
    ("bit", {}, r"they are a ResNet there and a ViT here;"),
    ("hybrid", {}, r"stem_width is 32 there and 0 here"),
  ],
)
def test_another_model(tmp_path, family, model, message):
  path = saved(tmp_path, families.params(family))
  with pytest.raises(c.ConfigError, match=rf"config\.init_from={path}: these weights.*{message}"):
    read(path, 5, **model)


def test_other_classes(tmp_path):
  path = saved(tmp_path, families.params("vit"))
  with pytest.raises(
    c.ConfigError, match=r"set \(synthetic:9\) has other .*head has no class '5', '6', '7', '8'\."
  ):
    read(path, 9)
  path = saved(tmp_path, families.params("vit"), class_names=("0", "1", "2", "x", "4"))
  with pytest.raises(
    c.ConfigError, match=r"w\.npz: .*set \(synthetic:5\) .* no class '3'.*class_names=FILE"
  ):
    read(path, 5)


@pytest.mark.parametrize(("names", "classes"), [("41230", 5), ("41230", 3), ("01234", 4)])
def test_a_set_gets_the_labels_of_the_head_by_name(tmp_path, names, classes):
  """Also a set that lacks classes of the head."""
  params = families.params("vit")
  found = read(saved(tmp_path, params, class_names=tuple(names)), classes)
  families.assert_same_bits(found.params, params)
  (own,), (theirs,) = data(classes).heads(), data(classes).of_head(found.head.names).heads()
  assert "".join(theirs.source.class_names) == names
  for i in range(20):
    named = [str(one) for one in own.source.labels(i)]
    assert [names[one] for one in theirs.source.labels(i)] == named
    assert theirs.source[i].labels == theirs.source.labels(i)


@pytest.mark.parametrize("names", [(), tuple(f"LABEL_{i}" for i in range(5))])
def test_classes_that_nothing_names_are_refused_until_the_order_is_given(tmp_path, names):
  path = saved(tmp_path, families.params("vit"), class_names=names)
  with pytest.raises(c.ConfigError, match=r"nothing names the 5 .*class_names=FILE .*=data"):
    read(path, 5)
  read(path)  # features need no names
  (tmp_path / "names.txt").write_text("\n".join("10234"))
  for setting, first in (("data", 0), (str(tmp_path / "names.txt"), 1)):
    config = configured(path, class_names=setting)
    head = scored(config, data(5), NOWHERE).head
    assert head.names[0] == str(first)
  with pytest.raises(c.ConfigError, match=r"nothing names the 5 .*=data for the order of data"):
    scored(configured(path, class_names="data"), data(4), NOWHERE)
  assert scored(config, data(4), NOWHERE).head.names == tuple("10234")


FAMILIES = ("vit", "representation", "gap", "2d", "hybrid", "root_hybrid", "axial", "bit")


@pytest.mark.parametrize("family", FAMILIES)
def test_model_and_images_come_from_the_weights(tmp_path, family):
  path = saved(tmp_path, families.params(family), image_size=32, resize=40, loss="sigmoid")
  found = scored(unnamed(path), data(5), NOWHERE)
  assert found.model == families.module(family, attention="xla")
  settings = found.settings
  assert (settings.data.image_size, settings.data.evaluate_resize) == (32, 40)
  assert settings.loss.kind == "sigmoid"


@pytest.mark.parametrize(
  ("given", "changes", "side", "resize"),
  [
    (("data.image_size",), dict(image_size=32), 32, 40),  # as large a share is cut out
    (("data.evaluate_resize",), dict(image_size=c.AUTO, evaluate_resize=0), 16, 0),
    (("data.image_size", "data.evaluate_resize"), dict(image_size=8, evaluate_resize=9), 8, 9),
    ((), dict(image_size=24, evaluate_resize=24), 24, 24),  # a recipe with a published size
    ((), dict(image_size=26, evaluate_resize=0), 24, 0),  # the nearest below that patches of 4 tile
    ((), dict(image_size=c.AUTO), 16, 20),
  ],
)
def test_what_is_named_goes_before_the_weights(tmp_path, given, changes, side, resize):
  path = saved(tmp_path, families.params("vit"), resize=20)
  images = c.Data(**changes)
  found = scored(unnamed(path, data=images), data(5), NOWHERE, frozenset(given)).settings.data
  assert (found.image_size, found.evaluate_resize) == (side, resize)


@pytest.mark.parametrize(
  ("given", "changes", "expected"),
  [
    ((), dict(image_size=c.AUTO), (True, "pillow_bicubic")),
    (("data.image_size",), dict(image_size=32), (True, "pillow_bicubic")),
    (("data.evaluate_squeeze",), dict(evaluate_squeeze=False), (False, "pillow_bicubic")),
    (
      ("data.evaluate_resize",),
      dict(image_size=c.AUTO, evaluate_resize=24),
      (False, "pillow_bicubic"),
    ),
    (("data.resampling",), dict(image_size=c.AUTO, resampling="bilinear"), (True, "bilinear")),
    ((), dict(image_size=24, evaluate_resize=24), (False, "pillow_bicubic")),  # a recipe's protocol
  ],
)
def test_the_filter_is_that_of_the_weights(tmp_path, given, changes, expected):
  card = dict(resize=20, squeeze=True, resampling="pillow_bicubic")
  path = saved(tmp_path, families.params("vit"), **card)
  config = unnamed(path, data=c.Data(**changes))
  found = scored(config, data(5), NOWHERE, frozenset(given)).settings.data
  assert (found.evaluate_squeeze, found.resampling) == expected


# What counts in an evaluation, whose settings have a value at the end.
COUNTS = (
  "model.",
  "loss.",
  "mesh.",
  "evaluate.",
  "position",
  "data.evaluate",
  "data.im",
  "data.res",
)
TOLD = "model.num_classes", "loss.kind"  # by the weights themselves
NAMED = {
  "data.image_size": 24,
  "data.evaluate_resize": 24,
  "data.evaluate_squeeze": False,
  "data.resampling": "torchvision_bilinear",
  "position_resizing": "bicubic",
  "model.compute_dtype": "bfloat16",
  "mesh.fsdp": 2,
  "evaluate.all.resize": 1.5,
  "evaluate.near.representation": "patches",
}


@pytest.mark.parametrize("key", [None, *NAMED])
@pytest.mark.parametrize("with_card", [True, False])
@pytest.mark.parametrize("steps", [0, 9])  # a recipe for evaluation alone, and one that trains
def test_each_setting_is_what_its_rule_gives_or_as_it_was_named(tmp_path, key, with_card, steps):
  card = Card(image_size=16, resize=20, squeeze=True, resampling="pillow_bicubic")
  path = str(tmp_path / "w.npz")
  if with_card:
    weights.write(tmp_path / "w.npz", weights.Weights(families.params("vit"), card))
  else:
    weights.save(tmp_path / "w.npz", families.params("vit"))
  sets, length = {"all": Classification("x"), "near": Nearest()}, c.Duration(steps=steps)
  ours = c.Config(init_from=path, class_names="data", evaluate=sets, duration=length)
  ours = dataclasses.replace(ours, batch_size=8)
  ours = ours if key is None else with_value(ours, key, NAMED[key])
  config = scored(ours, data(5), NOWHERE, frozenset([key])).settings
  loaded = vit_jax.load(path)
  known = facts.of_devices() | {
    "card": lambda config: loaded.card,
    "architecture": lambda config: loaded.card.model,
    "representation": lambda config: loaded.card.representation,
    "fields": lambda config: models.fields_of_module(loaded.module),
    "attention": lambda config: "xla",
    "parts": lambda config: (1, ""),
  }

  def read(name):
    kind, _, rest = name.partition(".")
    if kind == "facts":
      return lambda: known[rest](config)
    return value_of(ours, rest) if kind == "asked" else value_of(config, name)

  decided = set()
  for name, rule in rules_of(ours).items():
    given = value_of(ours, name)
    if is_auto(given) and not is_auto(value_of(config, name)) and name not in TOLD:
      assert value_of(config, name) == rule.derive(*map(read, rule.reads))[0], name
      decided.add(name)
    elif not is_auto(given):
      assert value_of(config, name) == given, name
  assert decided | {key} >= {*NAMED} - {"mesh.fsdp"} | {"model.depth", "model.attention"}
  assert not [name for name in left(config) if name.startswith(COUNTS)]
  assert (config.loss.kind, config.accumulation) == ("softmax", 1)
  assert config.model.num_classes == 5


RECIPE = dict(image_size=24, evaluate_resize=36, resampling="torchvision_bilinear")


def test_a_card_counts_more_than_the_recipe_of_a_training_in_all_that_it_tells(tmp_path):
  card = dict(resize=20, squeeze=True, resampling="pillow_bicubic", position_resizing="bicubic")
  path = saved(tmp_path, families.params("vit"), **card)
  recipe = unnamed(path, data=c.Data(**RECIPE), duration=c.Duration(steps=9))
  recipe = dataclasses.replace(recipe, position_resizing="bilinear_aligned")
  found = scored(recipe, data(5), NOWHERE).settings
  assert (found.data.image_size, found.data.evaluate_resize) == (16, 20)
  assert (found.data.evaluate_squeeze, found.data.resampling) == (True, "pillow_bicubic")
  assert found.position_resizing == "bicubic"


@pytest.mark.parametrize(
  ("named", "size", "resize"), [((), 16, 24), (("data.image_size",), 24, 36)]
)
def test_without_a_card_the_recipe_of_a_training_tells_the_part_that_is_scored(
  tmp_path, named, size, resize
):
  weights.save(tmp_path / "w.npz", families.params("vit"))
  recipe = unnamed(str(tmp_path / "w.npz"), data=c.Data(**RECIPE), duration=c.Duration(steps=9))
  found = scored(recipe, data(), NOWHERE, frozenset(named)).settings.data
  assert (found.image_size, found.evaluate_resize) == (size, resize)
  assert found.resampling == "torchvision_bilinear"


def test_settings_of_training_that_the_models_of_the_weights_lack_stand_in_no_way(tmp_path):
  path = saved(tmp_path, families.params("bit"), image_size=32)
  recipe = unnamed(path, duration=c.Duration(steps=9))
  recipe = dataclasses.replace(recipe, model=c.Model("ViT-B/16", dropout=0.1, scan=True))
  found = scored(recipe, data(5), NOWHERE)
  assert found.model == families.module("bit", attention="xla")
  gpu = types.SimpleNamespace(platform="gpu", compute_capability="9.0")
  axial = saved(tmp_path, families.params("axial"), name="axial.npz", image_size=32)
  recipe = dataclasses.replace(recipe, init_from=axial)
  recipe = with_value(recipe, "model.compute_dtype", "bfloat16")
  assert scored(recipe, data(5), NOWHERE, devices=[gpu]).settings.model.attention == "cudnn"


def test_a_name_that_is_left_to_the_weights_is_theirs(tmp_path):
  path = saved(tmp_path, families.params("vit"))
  found = scored(unnamed(path), data(5), NOWHERE, frozenset(["model.name"])).settings
  assert (found.model.depth, found.model.width) == (2, 32)


def test_a_batch_that_nobody_gives_is_that_of_the_run_of_the_weights(tiny_run, tmp_path):
  run = json.loads((tiny_run / "config.json").read_text())["batch_size"]
  for place, given, expected in (
    (str(tiny_run), c.AUTO, run),
    (str(tiny_run), 7, 7),
    (str(tmp_path / "w.npz"), c.AUTO, 256),
    ("", c.AUTO, 256),
  ):
    found = resolve(c.Config(batch_size=given), facts.of_evaluation(place))
    assert found.batch_size == expected


def test_what_a_training_derived_for_its_devices_is_derived_anew():
  run = dataclasses.replace(resolved.config(accumulation=8, mesh=c.Mesh(data=8)), batch_size=64)
  derived = dataclasses.replace(run, derived=("mesh.data", "accumulation"))
  for config, named, expected in (
    (run, (), (8, 8)),
    (derived, (), (c.AUTO, 8)),  # parts of this size fit into the memory
    (derived, ("batch_size",), (c.AUTO, c.AUTO)),
    (derived, ("batch_size", "accumulation", "mesh.data"), (8, 8)),
  ):
    found = evaluated_model.anew(config, frozenset(named))
    assert (found.mesh.data, found.accumulation) == expected


def test_features_are_those_that_the_weights_are_trained_for(tmp_path):
  sets = {"trained": Nearest(), "given": Nearest(representation="pre_logits")}
  for representation in ("patches", "pre_logits"):
    path = saved(tmp_path, families.params("vit"), representation=representation)
    found = scored(unnamed(path, evaluate=sets), data(5), NOWHERE).settings.evaluate
    assert found["trained"].representation == representation
    assert found["given"].representation == "pre_logits"


def test_a_set_that_a_rule_resized_as_all_follows_what_the_command_line_asks_for(tmp_path):
  path = saved(tmp_path, families.params("vit"), resize=20)
  sets = {"all": Classification("x", resize=1.25), "own": Classification("y", resize=1.75)}
  of_run = unnamed(path, data=c.Data(image_size=16, evaluate_resize=20), evaluate=sets)
  of_run = dataclasses.replace(of_run, derived=("evaluate.all.resize",))
  of_run = with_value(of_run, "data.evaluate_resize", 24)
  named = frozenset(["data.evaluate_resize"])
  found = scored(evaluated_model.anew(of_run, named), data(5), NOWHERE, named).settings
  sides = {key: spec.resizing(found.data)["resize"] for key, spec in found.evaluate.items()}
  assert sides == {"all": 24, "own": 28}


def test_positions_are_resized_by_the_rule_of_the_weights(tmp_path):
  params, table = families.params("vit"), "Transformer/posembed_input/pos_embedding"
  path = saved(tmp_path, params, position_resizing="bicubic_antialiased")
  images, given = c.Data(image_size=8), frozenset(["data.image_size"])
  for rule, expected in ((c.AUTO, "bicubic_antialiased"), ("bicubic", "bicubic")):
    config = unnamed(path, data=images, position_resizing=rule)
    found = scored(config, data(5), NOWHERE, given)
    wanted = resize_table(flatten(params)[table], (4, 4), (2, 2), before=1, rule=expected)
    np.testing.assert_array_equal(flatten(found.params)[table], wanted)


def test_a_training_recipe_leaves_model_and_images_to_the_weights(tmp_path):
  path = saved(tmp_path, families.params("vit"), resize=20)
  images = c.Data(image_size=224, evaluate_resize=256)
  recipe = configured(path, model=c.Model("R50x1"), data=images, duration=c.Duration(steps=9))
  found = scored(recipe, data(5), NOWHERE)
  assert found.model == families.module("vit", attention="xla")
  assert (found.settings.data.image_size, found.settings.data.evaluate_resize) == (16, 20)
  given = frozenset(["model.name"])
  with pytest.raises(c.ConfigError, match=r"not of a R50x1 .*: they are a ViT there and a ResNet"):
    scored(recipe, data(5), NOWHERE, given)
  recipe = dataclasses.replace(recipe, model=resolved.model(depth=7, pool="gap"))
  for setting, message in (
    ("depth", "config.model.depth is 2 in these weights, but 7 was asked for"),
    ("pool", "config.model.pool is class_token in these weights, but gap"),
    ("representation_layer", ""),
  ):
    given = frozenset([f"model.{setting}"])
    if message:
      with pytest.raises(c.ConfigError, match=message):
        scored(recipe, data(5), NOWHERE, given)
    else:
      scored(recipe, data(5), NOWHERE, given)


def test_weights_without_a_card_tell_what_they_can(tmp_path):
  weights.save(tmp_path / "w.npz", families.params("vit"))
  path = str(tmp_path / "w.npz")
  found = scored(unnamed(path, resize=20), data(), NOWHERE).settings.data
  assert (found.image_size, found.evaluate_resize) == (16, 20)
  for family in ("bit", "relative", "none"):
    weights.save(tmp_path / "w.npz", families.params(family))
    with pytest.raises(c.ConfigError, match=r"do not tell the size .*data\.image_size=224"):
      scored(unnamed(path), data(), NOWHERE)
    images = c.Data(image_size=16)
    given = frozenset(["data.image_size"])
    assert scored(unnamed(path, data=images), data(), NOWHERE, given).side == 0


def test_a_size_that_the_patches_do_not_tile_is_refused(tmp_path):
  path, given = saved(tmp_path, families.params("vit")), frozenset(["data.image_size"])
  with pytest.raises(c.ConfigError, match=r"image_size=18 is not divisible .*nearest: 16, 20"):
    scored(unnamed(path, data=c.Data(image_size=18)), data(), NOWHERE, given)


@pytest.mark.parametrize(("step", "average"), [(7, True), (0, False)])
def test_a_file_has_no_step_and_no_average_to_choose(tmp_path, step, average):
  path = saved(tmp_path, families.params("vit"))
  with pytest.raises(
    c.ConfigError, match=r"w\.npz has no checkpoints to choose a step or a moving"
  ):
    scored(unnamed(path, evaluate_step=step), data(), NOWHERE, average=average)


def test_no_other_weights_are_scored_than_those_that_are_named(tiny_run):
  """Neither the newest step in place of the named one, nor the workdir's in place of a file."""
  run = tiny_run
  assert scored(unnamed(str(run), evaluate_step=5), data(), NOWHERE).params
  with pytest.raises(c.ConfigError, match=r"has no checkpoint of step 4; its steps are 5"):
    scored(unnamed(str(run), evaluate_step=4), data(), NOWHERE)
  given = frozenset(["init_from"])
  with pytest.raises(c.ConfigError, match=r"would be scored and not config.init_from=other\.npz; "):
    scored(unnamed("other.npz"), data(), run, given)
  assert scored(unnamed("other.npz"), data(), run).origin == {
    "step": 5,
    "average": True,
  }
  assert scored(unnamed(""), data(), run, given).origin == {
    "step": 5,
    "average": True,
  }


def test_how_images_are_prepared_in_words():
  sets = {"a": 0.0, "b": 512 / 480, "c": 1.0}
  use = lambda resize: NamedDataset("", Classification("x", resize=resize), None)
  opened = tuple((name, LabelledSet(use(resize), None)) for name, resize in sets.items())
  square = resolved.data(image_size=480)
  words = functools.partial(evaluate.preparation_in_words, square, Evaluations(opened))
  assert words(known=True) == (
    "480 x 480 px; b: smaller side to 512 px, centre of 480 px; c: smaller side to 480 px, centre "
    "of 480 px"
  )
  assert "480 x 480 px (the weights do not tell" in words(known=False)
  for resize in (0, 256):
    plain = c.Data(image_size=224, evaluate_resize=resize)
    words = evaluate.preparation_in_words(plain, Evaluations(), known=False)
    assert words == "256 x 256 px, centre of 224 px"


def test_a_recipe_that_names_the_preparation_leaves_nothing_to_guess(tmp_path):
  weights.save(tmp_path / "w.npz", families.params("vit"))
  path = str(tmp_path / "w.npz")
  images = c.Data(image_size=16, evaluate_resize=20)
  named = unnamed(path, data=images, class_names="data")
  guessed = unnamed(path, class_names="data")
  known = lambda config: scored(config, data(5), NOWHERE).resizing_known
  assert (known(named), known(guessed)) == (True, False)


def test_nothing_to_score(tmp_path):
  with pytest.raises(c.ConfigError, match=r"such has no checkpoint .*--config\.init_from=PATH"):
    read("", 5)
  with pytest.raises(c.ConfigError, match=r"config\.init_from=.*gone\.npz does not exist"):
    read(str(tmp_path / "gone.npz"), 5)
