"""Similarities of position embeddings: golden values, and embeddings that are known."""

import numpy as np
import pytest

from tests.extras.inspection.miniatures import model
from tests.golden import weights as golden
from vit_jax import models
from vit_jax.extras import inspection
from vit_jax.extras.inspection import similarity
from vit_jax.storage.tree import nest

GRID = (4, 4)


def of(family):
  return inspection.position_similarity(*model(family), GRID)


def test_golden():
  record, wanted = golden.golden("vit"), golden.golden("inspection")["position_similarity"]
  params = nest(golden.make(record["shapes"]))
  found = inspection.position_similarity(models.module_of(params), params, GRID)["stem"]
  np.testing.assert_allclose(found.reshape(16, 16), wanted, atol=1e-6, rtol=0)


@pytest.mark.parametrize(
  ("family", "places"),
  [
    ("gap", ["stem"]),
    ("1d_shared", ["shared"]),
    ("2d", ["stem"]),
    ("2d_every_layer", ["layer 0", "layer 1"]),
    ("axial", ["stem"]),
  ],
)
def test_every_place_is_a_symmetric_table_of_cosines(family, places):
  found = of(family)
  assert list(found) == places
  for table in found.values():
    table = table.reshape(16, 16)
    np.testing.assert_allclose(np.diag(table), 1, atol=1e-6)
    np.testing.assert_array_equal(table, table.T)
    assert np.abs(table).max() <= 1 + 1e-6


def test_the_cosine_of_two_patches():
  tables = model("2d")[1]["Transformer"]["posembed_input"]
  one, other = (
    np.concatenate([tables["pos_embedding_row"][row], tables["pos_embedding_column"][column]])
    for row, column in ((1, 2), (3, 0))
  )
  cosine = one @ other / np.linalg.norm(one) / np.linalg.norm(other)
  assert of("2d")["stem"][1, 2, 3, 0] == pytest.approx(cosine, abs=1e-6)


def test_relative_embeddings_are_shown_by_offset():
  found = of("relative")
  assert list(found) == ["layer 0", "layer 1"]
  table = model("relative")[1]["Transformer"]["encoderblock_1"]
  table = table["MultiHeadDotProductAttention_1"]["pos_embedding_relative"][:, 1]
  middle = 16  # of 33 offsets between 17 tokens
  assert len(table) == 33
  zero, other = table[middle], table[middle + 4 - 2]  # one row down, two columns to the left
  cosine = zero @ other / np.linalg.norm(zero) / np.linalg.norm(other)
  assert found["layer 1"].shape == (2, 7, 7)
  assert found["layer 1"][1, 3 + 1, 3 - 2] == pytest.approx(cosine, abs=1e-6)
  np.testing.assert_allclose(found["layer 1"][:, 3, 3], 1, atol=1e-6)


def test_relative_embeddings_of_an_axial_model():
  module = model("axial")[0].clone(positions="relative")
  table = np.random.default_rng(0).standard_normal((7, 2, 16)).astype(np.float32)
  own = {"MultiHeadDotProductAttention_1": {"pos_embedding_relative": table}}
  blocks = {f"encoderblock_{i}": {"row": own, "column": own} for i in range(2)}
  found = inspection.position_similarity(module, {"Transformer": blocks}, GRID)
  assert found["layer 0 rows"].shape == (2, 1, 7)
  assert found["layer 1 columns"].shape == (2, 7, 1)


@pytest.mark.parametrize("grid", [(3, 4), (1, 4), (3, 1), (1, 1)])
def test_means_by_loops(grid):
  table, found = np.random.default_rng(0).normal(size=grid + grid), {}
  for i, j, k, m in np.ndindex(*table.shape):
    kind = {(True, False): "row", (False, True): "column", (False, False): "elsewhere"}
    if (i, j) != (k, m):
      found.setdefault(kind[i == k, j == m], []).append(table[i, j, k, m])
  means = similarity.means(table)
  assert means == {name: pytest.approx(np.mean(values)) for name, values in found.items()}


def test_what_cannot_be_shown():
  assert of("none") == {}
  for rows, columns in ((65, 65), (4097, 1), (1, 4097)):
    with pytest.raises(ValueError, match=f"{rows} x {columns} patches.*at most 4,096"):
      inspection.position_similarity(*model("vit"), (rows, columns))
  with pytest.raises(ValueError, match=r"a grid of 4 x 8 patches; take those of model\.at_size"):
    inspection.position_similarity(*model("vit"), (4, 8))
