"""Fitting loaded parameters to a model: nothing is reset, resized or dropped without a report."""

import jax
import numpy as np
import pytest

from tests.weights import families
from vit_jax import weights
from vit_jax.storage.tree import flatten, nest
from vit_jax.weights.fit import resize_axis, resize_table


def shapes(module, side=families.SIDE):
  images = np.zeros((1, side, side, 3), np.float32)
  return jax.eval_shape(lambda: module.init(jax.random.key(0), images, train=False))["params"]


def fit(family, module, side=families.SIDE):
  grid = module.grid(side, side)
  return weights.fit(families.params(family), shapes(module, side), grid)


def whats(rows):
  return {row.name: row.what for row in rows if row.what != "taken"}


@pytest.mark.parametrize("family", families.FAMILIES)
def test_all_is_taken_where_all_fits(family):
  fitted, rows = fit(family, families.module(family))
  families.assert_same_bits(fitted, families.params(family))
  assert whats(rows) == {}
  assert len(rows) == len(flatten(fitted))


def test_another_number_of_classes_makes_a_new_head():
  fitted, rows = fit("vit", families.module("vit", num_classes=7))
  assert whats(rows) == {"head/kernel": "new", "head/bias": "new"}
  assert "head" not in fitted
  expected = {k: v for k, v in families.params("vit").items() if k != "head"}
  families.assert_same_bits(fitted, expected)
  assert "2 of" not in weights.table(rows)
  assert "new      head/kernel  in the file (32, 5)" in weights.table(rows)


def test_a_head_that_the_file_lacks_is_new_and_the_table_says_no_more():
  params = {k: v for k, v in families.params("vit").items() if k != "head"}
  fitted, rows = weights.fit(params, shapes(families.module("vit")), (4, 4), new_head=True)
  families.assert_same_bits(fitted, params)
  assert {row.name: row.detail for row in rows if row.what == "new"} == {
    "head/kernel": "",
    "head/bias": "",
  }


def test_the_representation_layer_goes_with_the_old_head():
  """Section 3.2: the whole pre-training head is dropped."""
  _, rows = fit("representation", families.module("vit", num_classes=7))
  assert whats(rows) == {
    "head/kernel": "new",
    "head/bias": "new",
    "pre_logits/kernel": "dropped",
    "pre_logits/bias": "dropped",
  }


@pytest.mark.parametrize(("classes", "new_head"), [(7, False), (5, True)])
def test_the_last_layer_alone_is_new_where_the_representation_layer_is_kept(classes, new_head):
  """What Appendix B.1.1 compares with: only the last layer is initialised again."""
  wanted = shapes(families.module("representation", num_classes=classes))
  fitted, rows = weights.fit(
    families.params("representation"),
    wanted,
    (4, 4),
    new_head=new_head,
    keep_representation=True,
  )
  assert whats(rows) == {"head/kernel": "new", "head/bias": "new"}
  expected = {k: v for k, v in families.params("representation").items() if k != "head"}
  families.assert_same_bits(fitted, expected)


def test_a_representation_layer_that_is_to_be_kept_must_be_there():
  wanted = shapes(families.module("representation"))
  with pytest.raises(ValueError, match=r"pre_logits/kernel \(32, 32\) is missing"):
    weights.fit(families.params("vit"), wanted, (4, 4), new_head=True, keep_representation=True)


@pytest.mark.parametrize("family", ["vit", "representation", "bit"])
def test_a_new_head_may_be_asked_for(family):
  """Section 3.2: for a task with as many classes as pre-training had."""
  params = {k: v for k, v in families.params(family).items() if k != "pre_logits"}
  module = families.module("vit" if family == "representation" else family)
  grid = module.grid(16, 16)
  fitted, rows = weights.fit(families.params(family), shapes(module), grid, new_head=True)
  found = whats(rows)
  assert {found.pop("head/kernel"), found.pop("head/bias")} == {"new"}
  assert set(found.values()) <= {"dropped"}
  families.assert_same_bits(fitted, {k: v for k, v in params.items() if k != "head"})


def test_the_representation_layer_is_not_dropped_under_a_head_that_stays():
  with pytest.raises(ValueError, match=r"pre_logits/kernel \(32, 32\) is not part of the model"):
    fit("representation", families.module("vit"))


def test_a_missing_representation_layer_is_not_made_up_under_a_head_that_stays():
  with pytest.raises(ValueError, match=r"pre_logits/kernel \(32, 32\) is missing"):
    fit("vit", families.module("representation"))


POSITIONED = ["vit", "2d_every_layer", "1d_shared", "relative", "axial", "axial_resnet"]


@pytest.mark.parametrize("family", POSITIONED)
def test_new_positions_may_be_asked_for(family):
  """All else is taken, at another resolution too."""
  params, module = families.params(family), families.module(family)
  for side in (families.SIDE, 28):
    fitted, rows = weights.fit(params, shapes(module, side), (side // 4,) * 2, new_positions=True)
    positions = {name for name in flatten(params) if "pos_embedding" in name}
    assert positions
    assert whats(rows) == dict.fromkeys(positions, "new")
    kept = {name: x for name, x in flatten(params).items() if name not in positions}
    families.assert_same_bits(fitted, nest(kept))


def test_a_model_without_positions_gets_no_new_ones():
  with pytest.raises(ValueError, match="has no position embeddings; leave"):
    weights.fit(families.params("bit"), shapes(families.module("bit")), None, new_positions=True)


@pytest.mark.parametrize("family", ["vit", "gap", "hybrid"])
def test_another_resolution_resizes_the_position_embeddings(family):
  side = 80 if family == "hybrid" else 28
  module = families.module(family)
  fitted, rows = fit(family, module, side)
  assert whats(rows) == {"Transformer/posembed_input/pos_embedding": "resized"}
  table = families.params(family)["Transformer"]["posembed_input"]["pos_embedding"]
  old = families.module(family).grid(families.SIDE, families.SIDE)
  new = module.grid(side, side)
  assert old != new
  expected = resize_table(table, old, new, class_token=family != "gap")
  got = fitted["Transformer"]["posembed_input"]["pos_embedding"]
  np.testing.assert_array_equal(got, expected)
  assert f"{old[0]} x {old[1]} -> {new[0]} x {new[1]} patches" in weights.table(rows)
  logits, _ = module.apply({"params": fitted}, families.images(side), train=False)
  assert np.isfinite(logits).all()


@pytest.mark.parametrize("family", ["2d", "2d_every_layer", "1d_shared"])
def test_every_table_of_position_embeddings_is_resized(family):
  fitted, rows = fit(family, families.module(family), 28)
  tables = [name for name in flatten(fitted) if "pos_embedding" in name]
  assert whats(rows) == dict.fromkeys(tables, "resized")
  before = flatten(families.params(family))
  for name in tables:
    if name.endswith(("row", "column")):
      np.testing.assert_array_equal(flatten(fitted)[name], resize_axis(before[name], 7))


def test_relative_embeddings_are_not_resized():
  said = r"relative is \(33, 2, 16\) and must be \(\d+, 2, 16\) \(relative .* are not resized\)"
  with pytest.raises(ValueError, match=said):
    fit("relative", families.module("relative"), 28)


def test_a_table_for_no_square_of_patches():
  params = families.params("gap")
  table = params["Transformer"]["posembed_input"]
  table["pos_embedding"] = table["pos_embedding"][:, :15]
  with pytest.raises(ValueError, match="15 patches, which is no square"):
    weights.fit(params, shapes(families.module("gap")), (4, 4))


def test_missing_extra_and_misshapen_parameters_are_all_named():
  flat = flatten(families.params("vit"))
  del flat["Transformer/encoder_norm/scale"]
  flat["Transformer/more"] = np.zeros(3, np.float32)
  flat["cls"] = np.zeros((1, 1, 31), np.float32)
  with pytest.raises(ValueError, match=r"3 parameters do not fit") as error:
    weights.fit(nest(flat), shapes(families.module("vit")), (4, 4))
  for words in (
    "Transformer/encoder_norm/scale (32,) is missing",
    "Transformer/more (3,) is not part of the model",
    "cls is (1, 1, 31) and must be (1, 1, 32)",
  ):
    assert words in str(error.value)


def test_five_of_many_are_named_and_the_others_counted():
  flat = {f"more_{i}": np.zeros(3, np.float32) for i in range(7)}
  for count, rest in ((5, "model$"), (6, "model; and 1 more$"), (7, "model; and 2 more$")):
    surplus = flatten(families.params("gap")) | dict([*flat.items()][:count])
    with pytest.raises(ValueError, match=f"^{count} parameters.*{rest}") as error:
      weights.fit(nest(surplus), families.params("gap"), (4, 4))
    assert str(error.value).count("is not part of") == 5
