"""The eight cells of Table 8 against a float64 ViT, under scan, and what order means to each."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import modules, reference
from vit_jax import models
from vit_jax.models.encoder import PositionEmbedding
from vit_jax.models.stacking import stack_blocks, unstack_blocks

DEPTH, WIDTH, ROWS, COLUMNS = 2, 32, 2, 6
TOKENS = 1 + ROWS * COLUMNS
TINY = dict(name="ViT-Ti/4", depth=DEPTH, width=WIDTH, mlp_dim=64, heads=4, num_classes=5)
IMAGES = np.random.default_rng(0).uniform(-1, 1, (2, 4 * ROWS, 4 * COLUMNS, 3)).astype(np.float32)

# (positions, position_place): parameters more than without any.
TABLE_8 = {
  ("none", "stem"): 0,
  ("1d", "stem"): TOKENS * WIDTH,
  ("1d", "every_layer"): DEPTH * TOKENS * WIDTH,
  ("1d", "every_layer_shared"): TOKENS * WIDTH,
  ("2d", "stem"): (ROWS + COLUMNS) * WIDTH // 2,
  ("2d", "every_layer"): DEPTH * (ROWS + COLUMNS) * WIDTH // 2,
  ("2d", "every_layer_shared"): (ROWS + COLUMNS) * WIDTH // 2,
  ("relative", "stem"): DEPTH * (2 * TOKENS - 1) * WIDTH,
}
CELLS = pytest.mark.parametrize(("positions", "place"), TABLE_8)


def create(positions, place="stem", **options):
  return models.create(**TINY | options, positions=positions, position_place=place)


def start(model):
  return modules.parameters(model, IMAGES, train=False)


def logits(model, params, images=IMAGES):
  return modules.run(model, params, images)[0]


def as_patches(images):
  """(B, 8, 24, 3) -> (B, 12, 4, 4, 3), in raster order."""
  cut = images.reshape(len(images), ROWS, 4, COLUMNS, 4, 3).swapaxes(2, 3)
  return cut.reshape(len(images), ROWS * COLUMNS, 4, 4, 3)


def as_images(patches):
  grid = patches.reshape(len(patches), ROWS, COLUMNS, 4, 4, 3).swapaxes(2, 3)
  return grid.reshape(len(patches), 4 * ROWS, 4 * COLUMNS, 3)


def embeddings(params):
  """The sum added to the tokens by the module's own position embeddings; 0 if it has none."""
  tables = params.get("posembed_input") or params.get("posembed_shared")
  if not tables:
    return 0
  if "pos_embedding" in tables:
    return tables["pos_embedding"]
  row, column = tables["pos_embedding_row"], tables["pos_embedding_column"]
  return np.stack([np.zeros(WIDTH)] + [np.concatenate([r, c]) for r in row for c in column])


def vit(params, place):
  """Logits of the whole model, with the position embeddings added by hand."""
  encoder = params["Transformer"]
  kernel = params["embedding"]["kernel"].reshape(-1, WIDTH)
  patches = as_patches(IMAGES.astype(float)).reshape(len(IMAGES), TOKENS - 1, -1)
  x = patches @ kernel + params["embedding"]["bias"]
  x = np.concatenate([np.repeat(params["cls"], len(x), axis=0), x], axis=1)
  if place == "stem":
    x = x + embeddings(encoder)
  for i in range(DEPTH):
    block = encoder[f"encoderblock_{i}"]
    x = x + embeddings(encoder if place == "every_layer_shared" else block)
    x = reference.encoder_block(block, x)
  return reference.dense(params["head"], reference.layer_norm(encoder["encoder_norm"], x)[:, 0])


@CELLS
def test_logits(positions, place):
  model = create(positions, place)
  params = start(model)
  expected = vit(jax.tree.map(np.float64, params), place)
  np.testing.assert_allclose(logits(model, params), expected, atol=2e-5)
  without = modules.count(start(create("none")))
  assert modules.count(params) - without == TABLE_8[positions, place]


@pytest.mark.parametrize(
  ("positions", "place", "options"),
  [
    ("1d", "every_layer", {}),
    ("2d", "every_layer_shared", {}),
    ("relative", "stem", {}),
    ("2d", "every_layer", dict(name="Axial-ViT-Ti/4")),
  ],
)
def test_scan_changes_neither_outputs_nor_gradients(positions, place, options):
  model = create(positions, place, **options)
  stacked = create(positions, place, **options, scan=True)
  params = start(model)
  expected, wanted = modules.logits_and_grads(model, params, IMAGES)
  actual, grads = modules.logits_and_grads(stacked, stack_blocks(params), IMAGES)
  np.testing.assert_allclose(actual, expected, atol=1e-5)
  modules.assert_close(unstack_blocks(grads), wanted)


def test_axial_models_have_offsets_of_rows_and_of_columns():
  count = lambda positions: modules.count(start(create(positions, name="Axial-ViT-Ti/4")))
  offsets = (2 * ROWS - 1) + (2 * COLUMNS - 1)
  assert count("relative") - count("none") == DEPTH * offsets * WIDTH


@pytest.mark.parametrize("before", [0, 1, 3])
def test_2d_table(before):
  module = PositionEmbedding("2d", (ROWS, COLUMNS), before, 6)
  params = modules.parameters(module)
  table = module.apply({"params": params})
  assert table.shape == (1, before + ROWS * COLUMNS, 6)
  assert not table[:, :before].any()
  for i in range(ROWS):
    for j in range(COLUMNS):
      entry = table[0, before + i * COLUMNS + j]
      np.testing.assert_array_equal(entry[:3], params["pos_embedding_row"][i])
      np.testing.assert_array_equal(entry[3:], params["pos_embedding_column"][j])


@pytest.mark.parametrize(
  ("positions", "place"), [("1d", "stem"), ("2d", "every_layer"), ("2d", "every_layer_shared")]
)
def test_patches_may_be_moved_with_their_embeddings(positions, place):
  """Any order with one vector for each patch; whole rows and columns with 2-D embeddings."""
  rng = np.random.default_rng(0)
  rows, columns = rng.permutation(ROWS), rng.permutation(COLUMNS)
  order = rng.permutation(ROWS * COLUMNS)
  if positions == "2d":
    order = (rows[:, None] * COLUMNS + columns).ravel()
  orders = {
    "pos_embedding": np.concatenate([[0], 1 + order]),
    "pos_embedding_row": rows,
    "pos_embedding_column": columns,
  }

  def move(path, leaf):
    name = path[-1].key
    return leaf[..., orders[name], :] if name in orders else leaf

  model = create(positions, place)
  params = start(model)
  moved = jax.tree_util.tree_map_with_path(move, params)
  shuffled = as_images(as_patches(IMAGES)[:, order])
  expected = logits(model, params)
  np.testing.assert_allclose(logits(model, moved, shuffled), expected, atol=1e-5)
  assert np.abs(logits(model, params, shuffled) - expected).max() > 1e-3


@pytest.mark.parametrize(
  ("positions", "pool"),
  [("none", "class_token"), ("none", "gap"), ("none", "map"), ("relative", "map")],
)
def test_without_positions_patches_have_no_order(positions, pool):
  model = create(positions, pool=pool)
  params = start(model)
  order = np.random.default_rng(0).permutation(ROWS * COLUMNS)
  shuffled = as_images(as_patches(IMAGES)[:, order])
  error = np.abs(logits(model, params, shuffled) - logits(model, params)).max()
  assert error < 1e-5 if positions == "none" else error > 1e-3


@CELLS
@pytest.mark.parametrize("scan", [False, True])
def test_embeddings_do_not_widen_the_type_of_the_computation(positions, place, scan):
  model = create(positions, place, scan=scan, dtype=jnp.bfloat16)
  init = lambda: model.init_with_output(jax.random.key(0), IMAGES, train=False)
  (logits, features), variables = jax.eval_shape(init)
  assert features["patches"].dtype == jnp.bfloat16
  assert logits.dtype == jnp.float32
  assert {x.dtype for x in jax.tree.leaves(variables)} == {jnp.dtype("float32")}
