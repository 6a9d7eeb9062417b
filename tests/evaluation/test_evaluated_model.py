"""Which parameters are scored, and which are refused in one sentence."""

import dataclasses
import functools
import json
import pathlib
import types

import numpy as np
import pytest

import vit_jax
from tests import modules, resolved
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
from vit_jax.evaluation.few_shot import FewShot, FewShotProbe
from vit_jax.evaluation.nearest_neighbours import Nearest
from vit_jax.extras.formats import timm
from vit_jax.inference.model import of_weights
from vit_jax.models.stacking import unstack_blocks
from vit_jax.storage.tree import flatten
from vit_jax.training import facts
from vit_jax.weights import safetensors
from vit_jax.weights.card import Card
from vit_jax.weights.resizing import resize_table

MODEL = c.Model(name="ViT-B/4", depth=2, width=32, mlp_dim=64, heads=2)
NOWHERE = pathlib.Path("/none-such")


NUMBERS = tuple("01234")
UNNAMED = tuple(f"LABEL_{i}" for i in range(5))  # as Transformers counts classes without names


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
  """Settings that take the model and the preparation of images from the weights."""
  return resolved.evaluation(init_from=path, **(dict(model=c.Model()) | changes))


def scored(config, evaluations, folder, named=frozenset(), *, average=True, devices=()):
  known = facts.of_devices(devices)
  return evaluated_model.read_evaluated(config, evaluations, folder, named, known, average=average)


@pytest.mark.parametrize("family", ["vit", "representation", "gap", "2d", "hybrid", "axial", "bit"])
def test_model_parameters_and_images_are_those_of_the_weights(tmp_path, family):
  """For features alone, and for the head; stacked, where that is asked for and the model can."""
  path = saved(tmp_path, families.params(family), image_size=32, resize=40, loss="sigmoid")
  given = frozenset(["data.image_size", "model.scan"])
  for classes, scan in ((0, False), (5, family != "bit")):
    config = configured(path, model=c.Model(scan=scan), data=c.Data(image_size=16))
    result = scored(config, data(classes), NOWHERE, given)
    families.assert_same_bits(unstack_blocks(result.params), families.params(family))
    options = dict(scan=True) if scan else {}
    assert result.model == families.module(family, attention="heads_first", **options)
    assert result.settings.model.num_classes == 5
    assert result.settings.loss.kind == "sigmoid"
    assert result.settings.data.evaluate_resize == 20  # as large a share is cut out
    assert result.origin == {"weights": path, "average": False}


def test_a_run_is_scored_by_its_own_names(tmp_path, monkeypatch):
  """Its `class_names` named the head of the weights that it began from; another file counts."""
  for name in ("first", "other"):
    (tmp_path / name).write_text("4 3 2 1 0".replace(" ", "\n"))
  images = c.Data(image_size=16)
  began = configured("w.npz", model=MODEL, data=images, class_names=str(tmp_path / "first"))
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


# Settings of an evaluation that are refused, and what the message names.
SIDE_18, SIDE_24 = c.Data(image_size=18), c.Data(image_size=24)
TRAINING = dict(duration=c.Duration(steps=9), data=SIDE_24)
DEEPER = resolved.model(depth=7, pool="gap")


@pytest.mark.parametrize(
  ("family", "changes", "named", "message"),
  [
    ("vit", dict(model=c.Model("ViT-B/8")), "", "not of a ViT-B/8 .*: patch is 4 there and 8"),
    (
      "vit",
      dict(model=dataclasses.replace(MODEL, depth=3, pool="gap")),
      "",
      "depth is 2 there and 3 here; pool is class_token there",
    ),
    ("gap", dict(model=MODEL), "", "pool is gap there and class_token here"),
    ("2d", dict(model=MODEL), "", "positions is 2d there and 1d here"),
    ("bit", dict(model=MODEL), "", "they are a ResNet there and a ViT here;"),
    ("hybrid", dict(model=MODEL), "", "stem_width is 32 there and 0 here"),
    (
      "vit",
      TRAINING | dict(model=c.Model("R50x1")),
      "model.name",
      "not of a R50x1 .*a ResNet here",
    ),
    ("vit", TRAINING | dict(model=DEEPER), "model.depth", "model.depth is 2 .*, but 7 was asked"),
    ("vit", TRAINING | dict(model=DEEPER), "model.pool", "model.pool is class_token .*, but gap"),
    ("vit", dict(data=SIDE_18), "data.image_size", "=18 is not divisible .*nearest: 16, 20"),
    ("vit", dict(evaluate_step=7), "", r"w\.npz has no checkpoints to choose a step or a moving"),
    ("no head", {}, "", "these weights have no head, so"),
  ],
)
def test_what_the_weights_are_not_is_refused(tmp_path, family, changes, named, message):
  params = families.params("vit" if family == "no head" else family)
  if family == "no head":
    del params["head"]
  path = saved(tmp_path, params)
  expected = rf"config\.init_from={path}: .*{message}"
  with pytest.raises(c.ConfigError, match=expected):
    scored(configured(path, **changes), data(5), NOWHERE, frozenset([named]))


def test_what_is_guessed_of_a_model_gives_way_to_what_the_command_line_names(tmp_path):
  """A file of timm alone does not tell its activation; a recipe has that of another model."""
  options = dict(num_classes=5, width=64)
  params = modules.parameters(families.module("vit", **options), families.images(), train=False)
  path = tmp_path / "timm.safetensors"
  arrays = {name: np.ascontiguousarray(x) for name, x in timm.to_timm(params).items()}
  safetensors.save_arrays(path, arrays, {})
  config = configured(str(path), model=c.Model(activation="quick_gelu"))
  for key, activation in (("model.activation", "quick_gelu"), ("model.scan", "gelu")):
    found = scored(config, data(), NOWHERE, frozenset([key]))
    assert found.model.activation == found.settings.model.activation == activation
  known = configured(saved(tmp_path, params), model=config.model)
  with pytest.raises(c.ConfigError, match=r"gelu_tanh in these weights, but quick_gelu was asked"):
    scored(known, data(), NOWHERE, frozenset(["model.activation"]))


# Each case: what the command line names, the settings, and then size, resize, squeeze and filter.
SQUEEZED = dict(resize=20, squeeze=True, resampling="pillow_bicubic")
RECIPE = dict(image_size=24, evaluate_resize=36, resampling="torchvision_bilinear")
NAMED_SIZE, NAMED_RESIZE = "data.image_size", "data.evaluate_resize"


@pytest.mark.parametrize(
  ("named", "changes", "expected"),
  [
    ("", {}, (16, 20, True, "pillow_bicubic")),
    (NAMED_SIZE, dict(image_size=32), (32, 40, True, "pillow_bicubic")),  # as large a share
    (NAMED_RESIZE, dict(evaluate_resize=24), (16, 24, False, "pillow_bicubic")),
    (NAMED_RESIZE, dict(evaluate_resize=0), (16, 0, False, "pillow_bicubic")),
    ("data.evaluate_squeeze", dict(evaluate_squeeze=False), (16, 20, False, "pillow_bicubic")),
    ("data.resampling", dict(resampling="bilinear"), (16, 20, True, "bilinear")),
    # A recipe with a published protocol; the nearest size below that patches of 4 tile.
    ("", dict(image_size=24, evaluate_resize=24), (24, 24, False, "pillow_bicubic")),
    ("", dict(image_size=26, evaluate_resize=0), (24, 0, False, "pillow_bicubic")),
  ],
)
def test_what_is_named_goes_before_the_weights(tmp_path, named, changes, expected):
  path = saved(tmp_path, families.params("vit"), **SQUEEZED)
  config = configured(path, data=c.Data(**changes))
  assert prepared(scored(config, data(5), NOWHERE, frozenset([named]))) == expected


@pytest.mark.parametrize(
  ("with_card", "named", "expected"),
  [
    (True, "", (16, 20, True, "pillow_bicubic")),
    # Without a card, the recipe tells the part that is scored.
    (False, "", (16, 24, False, "torchvision_bilinear")),
    (False, NAMED_SIZE, (24, 36, False, "torchvision_bilinear")),
  ],
)
def test_a_card_counts_more_than_the_recipe_of_a_training(tmp_path, with_card, named, expected):
  """In all that it tells, the model and its positions too."""
  params = families.params("vit")
  path = saved(tmp_path, params, **SQUEEZED, position_resizing="bicubic")
  if not with_card:
    (tmp_path / "w.npz.json").unlink()
  images, length = c.Data(**RECIPE), c.Duration(steps=9)
  recipe = configured(path, model=c.Model("R50x1"), data=images, duration=length)
  recipe = dataclasses.replace(recipe, position_resizing="bilinear_aligned")
  found = scored(recipe, data(5 * with_card), NOWHERE, frozenset([named]))
  assert prepared(found) == expected
  assert found.model == families.module("vit", attention="heads_first")
  assert found.settings.position_resizing == ("bicubic" if with_card else "bilinear_aligned")


def prepared(found):
  images = found.settings.data
  return images.image_size, images.evaluate_resize, images.evaluate_squeeze, images.resampling


def test_weights_without_a_card_tell_what_they_can(tmp_path):
  path = str(tmp_path / "w.npz")
  weights.save(path, families.params("vit"))
  guessed = configured(path, class_names="data")
  given = dataclasses.replace(guessed, data=c.Data(image_size=16, evaluate_resize=20))
  for config, known in ((guessed, False), (given, True)):
    found = scored(config, data(5), NOWHERE)
    assert (found.settings.data.image_size, found.resizing_known) == (16, known)
  of_library = saved(tmp_path, families.params("vit"), "guessed.npz", guessed=True)
  assert not scored(configured(of_library), data(5), NOWHERE).resizing_known
  for family in ("bit", "relative", "none"):
    weights.save(path, families.params(family))
    with pytest.raises(c.ConfigError, match=r"do not tell the size .*data\.image_size=224"):
      scored(configured(path), data(), NOWHERE)
    sized = configured(path, data=c.Data(image_size=16))
    assert scored(sized, data(), NOWHERE, frozenset([NAMED_SIZE])).size == 0


def test_settings_of_training_that_the_models_of_the_weights_lack_stand_in_no_way(tmp_path):
  axial = saved(tmp_path, families.params("axial"), image_size=32)
  model = c.Model("ViT-B/16", dropout=0.1, scan=True, compute_dtype="bfloat16")
  recipe = configured(axial, model=model, duration=c.Duration(steps=9))
  gpu = types.SimpleNamespace(platform="gpu", compute_capability="9.0")
  assert scored(recipe, data(5), NOWHERE, devices=[gpu]).settings.model.attention == "cudnn"
  bit = saved(tmp_path, families.params("bit"), image_size=32)
  recipe = dataclasses.replace(recipe, init_from=bit)
  recipe = with_value(recipe, "model.compute_dtype", "float32")
  for named in ("", "model.representation_layer"):
    found = scored(recipe, data(5), NOWHERE, frozenset([named]))
    assert found.model == families.module("bit", attention="heads_first")


def test_features_are_those_that_the_weights_are_trained_for(tmp_path):
  """Weights without a head do for them."""
  params = families.params("vit")
  del params["head"]
  sets = {"trained": Nearest(), "given": Nearest(representation="pre_logits")}
  for representation in ("patches", "pre_logits"):
    path = saved(tmp_path, params, class_names=(), representation=representation)
    found = scored(configured(path, evaluate=sets), data(), NOWHERE).settings.evaluate
    assert found["trained"].representation == representation
    assert found["given"].representation == "pre_logits"


def test_positions_are_resized_by_the_rule_of_the_weights(tmp_path):
  params, table = families.params("vit"), "Transformer/posembed_input/pos_embedding"
  path = saved(tmp_path, params, position_resizing="bicubic_antialiased")
  images, given = c.Data(image_size=8), frozenset([NAMED_SIZE])
  for rule, expected in ((c.AUTO, "bicubic_antialiased"), ("bicubic", "bicubic")):
    config = configured(path, data=images, position_resizing=rule)
    found = scored(config, data(5), NOWHERE, given)
    wanted = resize_table(flatten(params)[table], (4, 4), (2, 2), before=1, rule=expected)
    np.testing.assert_array_equal(flatten(found.params)[table], wanted)


@pytest.mark.parametrize(("names", "classes"), [("41230", 5), ("41230", 3), ("01234", 4)])
def test_a_set_gets_the_labels_of_the_head_by_name(tmp_path, names, classes):
  """Also a set that lacks classes of the head."""
  path = saved(tmp_path, families.params("vit"), class_names=tuple(names))
  found = scored(configured(path), data(classes), NOWHERE)
  (own,), (theirs,) = data(classes).heads(), data(classes).of_head(found.head.names).heads()
  assert "".join(theirs.source.class_names) == names
  for i in range(20):
    named = [str(one) for one in own.source.labels(i)]
    assert [names[one] for one in theirs.source.labels(i)] == named
    assert theirs.source[i].labels == theirs.source.labels(i)


@pytest.mark.parametrize(
  ("names", "setting", "classes", "message"),
  [
    (NUMBERS, "", 9, "head has no class '5', '6', '7', '8'."),
    ((*"012x4",), "", 5, r"set \(synthetic:5\) .* no class '3'.*class_names=FILE"),
    ((), "", 5, "nothing names the 5 .*class_names=FILE .*=data"),
    ((), "data", 4, "nothing names the 5 .*=data for the order of data"),
    (UNNAMED, "", 5, "nothing names the 5 .*class_names=FILE .*=data"),
  ],
)
def test_classes_that_the_head_does_not_have_or_name_are_refused(
  tmp_path, names, setting, classes, message
):
  path = saved(tmp_path, families.params("vit"), class_names=names)
  with pytest.raises(c.ConfigError, match=rf"w\.npz: .*{message}"):
    scored(configured(path, class_names=setting), data(classes), NOWHERE)


@pytest.mark.parametrize("names", [(), UNNAMED])
def test_the_order_of_a_head_without_names_may_be_given(tmp_path, names):
  path = saved(tmp_path, families.params("vit"), class_names=names)
  (tmp_path / "names.txt").write_text("\n".join("10234"))
  of_file = str(tmp_path / "names.txt")
  for setting, classes in (("data", 5), (of_file, 5), (of_file, 4)):
    found = scored(configured(path, class_names=setting), data(classes), NOWHERE)
    assert "".join(found.head.names) == ("01234" if setting == "data" else "10234")
  scored(configured(path), data(), NOWHERE)  # features need no names


def test_no_other_weights_are_scored_than_those_that_are_named(tiny_run, tmp_path):
  """Neither the newest step in place of the named one, nor the workdir's in place of a file."""
  own = {"step": 5, "average": True}
  score = lambda path, **step: scored(configured(path, **step), data(), NOWHERE)
  assert score(str(tiny_run), evaluate_step=5).params
  assert scored(configured(""), data(), tiny_run).origin == own
  with pytest.raises(c.ConfigError, match=r"has no checkpoint of step 4; its steps are 5"):
    score(str(tiny_run), evaluate_step=4)
  with pytest.raises(c.ConfigError, match=r"such has no checkpoint .*--config\.init_from=PATH"):
    score("")
  with pytest.raises(c.ConfigError, match=r"config\.init_from=.*gone\.npz does not exist"):
    score(str(tmp_path / "gone.npz"))
  path = saved(tmp_path, families.params("vit"))
  with pytest.raises(c.ConfigError, match="has no checkpoints to choose a step or a moving"):
    scored(configured(path), data(), NOWHERE, average=False)


def test_a_workdir_is_not_scored_in_place_of_the_weights_that_are_asked_for(tiny_run, tmp_path):
  """A recipe for evaluation alone asks for `init_from`; that of a training began from it."""
  place = evaluated_model.place_of
  named = frozenset(["init_from"])
  of_training = resolved.config(init_from="other.npz", duration=c.Duration(steps=5))
  for config, given in (
    (configured(""), named),
    (configured(str(tiny_run)), frozenset()),
    (configured(f"{tiny_run.parent}/./{tiny_run.name}"), named),
    (of_training, frozenset()),
  ):
    assert place(config, tiny_run, given) == str(tiny_run)
  for config, given in (
    (configured("other.npz"), frozenset()),
    (configured(f"{tiny_run}/checkpoints/5"), named),
    (of_training, named),
  ):
    with pytest.raises(c.ConfigError, match=r"would be scored and not config.init_from=.*; give"):
      place(config, tiny_run, given)
  assert place(configured("other.npz"), tmp_path, named) == "other.npz"


# What counts in an evaluation, whose settings have a value at the end.
COUNTS = "model.", "loss.", "mesh.", "evaluate.", "position"
COUNTS += "data.evaluate", "data.im", "data.res"
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
    "attention": lambda config: {"float32": "heads_first"}.get(config.model.compute_dtype, "xla"),
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


def test_a_set_that_a_rule_resized_as_all_follows_what_the_command_line_asks_for(tmp_path):
  path = saved(tmp_path, families.params("vit"), resize=20)
  sets = {"all": Classification("x", resize=1.25), "own": Classification("y", resize=1.75)}
  of_run = configured(path, data=c.Data(image_size=16, evaluate_resize=20), evaluate=sets)
  of_run = dataclasses.replace(of_run, derived=("evaluate.all.resize",))
  of_run = with_value(of_run, "data.evaluate_resize", 24)
  named = frozenset(["data.evaluate_resize"])
  found = scored(evaluated_model.anew(of_run, named), data(5), NOWHERE, named).settings
  sides = {key: spec.resizing(found.data)["resize"] for key, spec in found.evaluate.items()}
  assert sides == {"all": 24, "own": 28}


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
  shots = [("shots", FewShotProbe(FewShot(), None, None, None))]
  words = functools.partial(
    evaluate.preparation_in_words, resolved.data(image_size=224), known=True
  )
  assert words(Evaluations((*opened, *shots))).endswith("; shots: 256 x 256 px, centre of 224 px")
  assert words(Evaluations(tuple(shots))) == "shots: 256 x 256 px, centre of 224 px"
