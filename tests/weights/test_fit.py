"""Fitting loaded parameters to a model: nothing is reset, resized or dropped without a report."""

import jax
import numpy as np
import pytest

from tests.weights import families
from vit_jax import weights
from vit_jax.storage.tree import flatten, nest
from vit_jax.weights.resizing import PUBLISHED, resize_axis, resize_table


def shapes(module, side=families.SIDE):
  images = np.zeros((1, side, side, 3), np.float32)
  return jax.eval_shape(lambda: module.init(jax.random.key(0), images, train=False))["params"]


def fit(family, module, side=families.SIDE, **options):
  grid = module.grid(side, side)
  return weights.fit(families.params(family), shapes(module, side), grid, **options)


def whats(rows):
  return {row.name: row.what for row in rows if row.what != "taken"}


@pytest.mark.parametrize("family", families.FAMILIES)
def test_all_is_taken_where_all_fits(family):
  fitted, rows = fit(family, families.module(family))
  families.assert_same_bits(fitted, families.params(family))
  assert whats(rows) == {}
  assert len(rows) == len(flatten(fitted))


TABLE = "posembed_input/pos_embedding"
NEW_HEAD = {"head/kernel": "new", "head/bias": "new"}
DROPPED = {"pre_logits/kernel": "dropped", "pre_logits/bias": "dropped"}
SEVEN, ASKED, KEPT = dict(num_classes=7), dict(new_head=True), dict(keep_representation=True)


@pytest.mark.parametrize(
  ("source", "family", "model", "options", "expected"),
  [
    ("vit", "vit", SEVEN, {}, NEW_HEAD),
    ("vit", "vit", {}, ASKED, NEW_HEAD),  # a task with as many classes as pre-training
    ("bit", "bit", {}, ASKED, NEW_HEAD),
    # Section 3.2: the whole pre-training head is dropped.
    ("representation", "vit", SEVEN, {}, NEW_HEAD | DROPPED),
    ("representation", "vit", {}, ASKED, NEW_HEAD | DROPPED),
    # What Appendix B.1.1 compares with: only the last layer is initialised again.
    ("representation", "representation", SEVEN, KEPT, NEW_HEAD),
    ("representation", "representation", {}, ASKED | KEPT, NEW_HEAD),
  ],
)
def test_a_new_head(source, family, model, options, expected):
  fitted, rows = fit(source, families.module(family, **model), **options)
  assert whats(rows) == expected
  parts = {name.partition("/")[0] for name in expected}
  families.assert_same_bits(
    fitted, {name: x for name, x in families.params(source).items() if name not in parts}
  )
  table = weights.table(rows)
  assert "new head/kernel in the file (" in " ".join(table.split())
  assert table.startswith(f"{len(rows) - len(expected)} of {len(rows)} parameters taken")


PER_CLASS = "objective/difference/bias"  # as of a distillation token


@pytest.mark.parametrize(
  ("options", "expected"),
  [
    ({}, {}),
    (ASKED, NEW_HEAD | {PER_CLASS: "new"}),
    (dict(outputs=(4, 2, 0, 1, 3)), dict.fromkeys((*NEW_HEAD, PER_CLASS), "moved")),
  ],
)
def test_what_an_objective_has_for_each_class_follows_the_head(options, expected):
  own = nest({PER_CLASS: np.arange(5.0), "objective/other/bias": np.arange(5.0)})
  wanted = shapes(families.module("vit")) | own
  stored = families.params("vit") | own
  fitted, rows = weights.fit(stored, wanted, (4, 4), per_class=PER_CLASS, **options)
  assert whats(rows) == expected
  order = list(options.get("outputs", range(5)))
  for name in {"head/bias", PER_CLASS} & {*flatten(fitted)}:
    np.testing.assert_array_equal(flatten(fitted)[name], flatten(stored)[name][order])


def test_a_head_that_the_file_lacks_is_new_and_the_table_says_no_more():
  params = {k: v for k, v in families.params("vit").items() if k != "head"}
  fitted, rows = weights.fit(params, shapes(families.module("vit")), (4, 4), new_head=True)
  families.assert_same_bits(fitted, params)
  details = {row.name: row.detail for row in rows if row.what == "new"}
  assert details == {"head/kernel": "", "head/bias": ""}


@pytest.mark.parametrize(
  ("source", "family", "side", "options", "message"),
  [
    ("representation", "vit", 16, {}, r"pre_logits/kernel \(32, 32\) is not part of the model"),
    ("vit", "representation", 16, {}, r"pre_logits/kernel \(32, 32\) is missing"),
    ("vit", "representation", 16, ASKED | KEPT, r"pre_logits/kernel \(32, 32\) is missing"),
    ("bit", "bit", 16, dict(new_positions=True), "has no position embeddings; leave"),
    ("relative", "relative", 28, {}, r"\(33, 2, 16\) and must be \(\d+, 2, 16\) \(relative"),
  ],
)
def test_what_does_not_fit(source, family, side, options, message):
  with pytest.raises(ValueError, match=message):
    fit(source, families.module(family), side, **options)


POSITIONED = ["vit", "2d_every_layer", "1d_shared", "relative", "axial", "axial_resnet"]


@pytest.mark.parametrize("family", POSITIONED)
def test_new_positions_may_be_asked_for(family):
  """All else is taken, at another resolution too."""
  params, module = families.params(family), families.module(family)
  for side in (families.SIDE, 28):
    fitted, rows = fit(family, module, side, new_positions=True)
    positions = {name for name in flatten(params) if "pos_embedding" in name}
    assert positions
    assert whats(rows) == dict.fromkeys(positions, "new")
    kept = {name: x for name, x in flatten(params).items() if name not in positions}
    families.assert_same_bits(fitted, nest(kept))


@pytest.mark.parametrize(
  ("family", "side"),
  [("vit", 28), ("gap", 28), ("hybrid", 80), ("2d", 28), ("2d_every_layer", 28), ("1d_shared", 28)],
)
def test_another_resolution_resizes_every_table_of_position_embeddings(family, side):
  module = families.module(family)
  fitted, rows = fit(family, module, side)
  before, after = flatten(families.params(family)), flatten(fitted)
  tables = [name for name in after if "pos_embedding" in name]
  assert whats(rows) == dict.fromkeys(tables, "resized")
  old, new = module.grid(families.SIDE, families.SIDE), module.grid(side, side)
  assert old != new
  for name in tables:
    if name.endswith(("row", "column")):
      expected = resize_axis(before[name], new[0], PUBLISHED)
    else:
      first = int(family != "gap")
      expected = resize_table(before[name], old, new, before=first, rule=PUBLISHED)
      assert f"{old[0]} x {old[1]} -> {new[0]} x {new[1]} patches" in weights.table(rows)
    np.testing.assert_array_equal(after[name], expected)
  families.assert_same_shapes(fitted, shapes(module, side))


@pytest.mark.parametrize(
  ("family", "name", "array", "message"),
  [
    ("gap", f"Transformer/{TABLE}", np.zeros((1, 15, 32)), "15 patches, which is no square"),
    ("vit", "Transformer/encoder_norm/scale", None, r"scale \(32,\) is missing"),
    ("vit", "pooled_norm/scale", np.zeros(32), r"scale \(32,\) is not part of the model"),
    ("vit", "Transformer/more", np.zeros(3), r"more \(3,\) is not part of the model"),
    ("vit", "cls", np.zeros((1, 1, 31)), r"cls is \(1, 1, 31\) and must be \(1, 1, 32\)"),
  ],
)
def test_missing_extra_and_misshapen_parameters_are_named(family, name, array, message):
  flat = flatten(families.params(family)) | {name: array}
  if array is None:
    del flat[name]
  with pytest.raises(ValueError, match=message):
    weights.fit(nest(flat), shapes(families.module(family)), (4, 4))


def test_five_of_many_are_named_and_the_others_counted():
  flat = {f"more_{i}": np.zeros(3, np.float32) for i in range(7)}
  for count, rest in ((5, "model$"), (6, "model; and 1 more$"), (7, "model; and 2 more$")):
    surplus = flatten(families.params("gap")) | dict([*flat.items()][:count])
    with pytest.raises(ValueError, match=rf"^parameters that .* \({count}\).*{rest}") as error:
      weights.fit(nest(surplus), families.params("gap"), (4, 4))
    assert str(error.value).count("is not part of") == 5
