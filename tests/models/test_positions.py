"""The eight cells of Table 8, and later parts, against a float64 ViT; scan and bfloat16."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import modules, reference
from vit_jax import models
from vit_jax.models.positions import FIXED, PositionEmbedding
from vit_jax.models.stacking import stack_blocks, unstack_blocks

DEPTH, WIDTH, ROWS, COLUMNS = 2, 32, 2, 6
PATCHES = ROWS * COLUMNS
TOKENS = 1 + PATCHES
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


def waves(count, width, divisor):
  """sin(p / 10000^(i / divisor)) for all i, then the cosines, for the places p = 0, 1, ..."""
  n = width // 2
  rows = []
  for p in range(count):
    angles = [p / 10000 ** (i / divisor(n)) for i in range(n)]
    rows.append([*map(math.sin, angles), *map(math.cos, angles)])
  return np.array(rows)


def fixed_table(kind, rows, columns, width):
  """Row by row, the waves of the column, then those of the row."""
  divisor = {"sincos2d": lambda n: n - 1, "sincos2d_mae": lambda n: n}[kind]
  of_row, of_column = (waves(n, width // 2, divisor) for n in (rows, columns))
  return np.array([[*of_column[j], *of_row[i]] for i in range(rows) for j in range(columns)])


def embeddings(params, positions, before):
  """The sum added to the tokens by a module's own position embeddings; 0 if it has none."""
  tables = params.get("posembed_input") or params.get("posembed_shared") or {}
  if "pos_embedding" in tables:
    return tables["pos_embedding"]
  if positions in FIXED:
    patches = fixed_table(positions, ROWS, COLUMNS, WIDTH)
  elif tables:
    row, column = tables["pos_embedding_row"], tables["pos_embedding_column"]
    patches = np.array([np.concatenate([r, c]) for r in row for c in column])
  else:
    return 0
  return np.concatenate([np.zeros((before, WIDTH)), patches])


def vit(params, positions, place, pool):
  """Outputs at the patches and logits of the whole model, with the embeddings added by hand."""
  encoder = params["Transformer"]
  kernel = params["embedding"]["kernel"].reshape(-1, WIDTH)
  grid = IMAGES.astype(float).reshape(len(IMAGES), ROWS, 4, COLUMNS, 4, 3).swapaxes(2, 3)
  x = grid.reshape(len(IMAGES), PATCHES, -1) @ kernel + params["embedding"]["bias"]
  first = [params[name] for name in ("cls", "register_tokens") if name in params]
  x = np.concatenate([*(np.repeat(tokens, len(x), axis=0) for tokens in first), x], axis=1)
  before = x.shape[1] - PATCHES
  if place == "stem":
    x = x + embeddings(encoder, positions, before)
  for i in range(DEPTH):
    block = encoder[f"encoderblock_{i}"]
    if place == "every_layer_shared":
      x = x + embeddings(encoder, positions, before)
    if place == "every_layer":
      x = x + embeddings(block, positions, before)
    x = reference.encoder_block(block, x)
  x = reference.layer_norm(encoder["encoder_norm"], x)
  pooled = x[:, 0] if pool == "class_token" else x[:, before:].mean(axis=1)
  return x[:, before:], reference.dense(params["head"], pooled)


LATER = dict(registers=3, qk_norm=True, layer_scale=True)
MODELS = [(*cell, {}) for cell in TABLE_8]
MODELS += [
  (kind, "stem", LATER | dict(pool=pool))
  for kind in ("1d", *FIXED)
  for pool in ("class_token", "gap")
]


@pytest.mark.parametrize(("positions", "place", "options"), MODELS)
def test_logits(positions, place, options):
  model = create(positions, place, **options)
  params = start(model)
  patches, expected = vit(jax.tree.map(np.float64, params), positions, place, model.pool)
  logits, features = modules.run(model, params, IMAGES)
  np.testing.assert_allclose(logits, expected, atol=2e-5)
  np.testing.assert_allclose(features["patches"], patches, atol=2e-5)
  if not options:
    without = modules.count(start(create("none")))
    assert modules.count(params) - without == TABLE_8[positions, place]


@pytest.mark.parametrize(
  ("positions", "place", "options"),
  [
    ("2d", "every_layer_shared", {}),
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


@CELLS
@pytest.mark.parametrize("scan", [False, True])
def test_embeddings_do_not_widen_the_type_of_the_computation(positions, place, scan):
  model = create(positions, place, scan=scan, dtype=jnp.bfloat16)
  init = lambda: model.init_with_output(jax.random.key(0), IMAGES, train=False)
  (logits, features), variables = jax.eval_shape(init)
  assert features["patches"].dtype == jnp.bfloat16
  assert logits.dtype == jnp.float32
  assert {x.dtype for x in jax.tree.leaves(variables)} == {jnp.dtype("float32")}
