"""Masked patch prediction: its loss, gradient and metrics, and what it refuses."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import reference, resolved
from tests.learning import steps
from tests.learning.test_objective import run
from vit_jax import config as c
from vit_jax import models
from vit_jax.config import ConfigError
from vit_jax.extras.masked_patches.corruption import KINDS, Corruption
from vit_jax.extras.masked_patches.objective import Masked, MaskedPatches
from vit_jax.extras.masked_patches.targets import TARGETS
from vit_jax.learning.objective import OBJECTIVE_PARAMS
from vit_jax.models import vit_costs

SIDE, SIZE = 24, 16
SMALL = dict(depth=1, width=32, mlp_dim=48, heads=2)
MODEL = models.create("ViT-B/8", **SMALL)
KEY = jax.random.key(5)


def of(target="mean_color", model=MODEL, rate=0.5):
  return MaskedPatches(model, rate, TARGETS[target])


def batch(seed=0, broken=(3,)):
  """Images with large even areas, so that some colours are frequent."""
  rng = np.random.default_rng(seed)
  images = rng.integers(0, 256, (SIZE, 3, 3, 3)).repeat(8, axis=1).repeat(8, axis=2)
  images = np.clip(images + rng.integers(-40, 41, images.shape), 0, 255).astype(np.uint8)
  mask = np.ones(SIZE, np.float32)
  mask[list(broken)] = 0
  return dict(image=images, mask=mask)


def params_of(objective):
  """Parameters without the zeros of a fresh model."""
  shapes = jax.eval_shape(lambda: objective.init(KEY, SIDE))
  leaves, tree = jax.tree.flatten(shapes)
  rng = np.random.default_rng(1)
  return tree.unflatten([np.float32(rng.normal(size=x.shape) * 0.1) for x in leaves])


@functools.partial(jax.jit, static_argnums=0)
def computed(objective, params, one):
  """A prepared batch and its sums."""
  prepared = objective.prepare(one, KEY)
  return prepared, objective.loss(params, {}, prepared, KEY)


def encoder(params, images, drawn):
  """The outputs at the patches in NumPy, float64, with embeddings corrupted."""
  p = jax.tree.map(np.float64, params)
  x = (np.float64(images) - 127.5) / 127.5
  x = x.reshape(len(x), 3, 8, 3, 8, 3).swapaxes(2, 3).reshape(len(x), 9, -1)
  x = x @ p["embedding"]["kernel"].reshape(8 * 8 * 3, -1) + p["embedding"]["bias"]
  mixed = np.take_along_axis(x, np.asarray(drawn.sources)[..., None], axis=1)
  x = np.where(np.asarray(drawn.masked)[..., None], p[OBJECTIVE_PARAMS]["mask_embedding"], mixed)
  x = np.concatenate([np.broadcast_to(p["cls"], (len(x), 1, x.shape[-1])), x], axis=1)
  blocks = p["Transformer"]
  x = x + blocks["posembed_input"]["pos_embedding"]
  x = reference.encoder_block(blocks["encoderblock_0"], x)
  return reference.layer_norm(blocks["encoder_norm"], x)[:, 1:]


@pytest.mark.parametrize("target", TARGETS)
def test_loss_and_metrics_against_numpy(target):
  objective, one = of(target), batch()
  params = params_of(objective)
  prepared, sums = jax.device_get(computed(objective, params, one))
  drawn = Corruption(*(prepared[name] for name in Corruption._fields))
  seen = np.take_along_axis(encoder(params, one["image"], drawn), drawn.patches[..., None], axis=1)
  layer = jax.tree.map(np.float64, params[OBJECTIVE_PARAMS]["prediction"])
  predictions = reference.dense(layer, seen)
  every = np.asarray(TARGETS[target].of(one["image"], 8))
  targets = np.take_along_axis(every, drawn.patches[..., None], axis=1)
  kept = one["mask"] > 0
  rows = targets[kept].reshape(-1, targets.shape[-1])
  if target == "pixels":
    scores = errors = np.mean((predictions - targets) ** 2, axis=-1)
    constant = rows.astype(float).var(axis=0).mean()
  else:
    logits = predictions.reshape(*targets.shape, 512)
    shares = reference.softmax(logits)
    own = np.take_along_axis(shares, targets[..., None], axis=-1)[..., 0]
    errors = -np.log(own).mean(axis=-1)
    scores = (logits.argmax(axis=-1) == targets).mean(axis=-1)
    shares = [np.unique(cell, return_counts=True)[1] / len(rows) for cell in rows.T]
    constant = np.mean([-np.sum(share * np.log(share)) for share in shares])
  assert sums.count == kept.sum()
  np.testing.assert_allclose(sums.loss, errors[kept].mean(axis=1).sum(), rtol=1e-5)
  measure = TARGETS[target].measure
  counts = {"": drawn.kinds >= 0} | {f"_{name}": drawn.kinds == i for i, name in enumerate(KINDS)}
  for name, counted in counts.items():
    counted = counted & kept[:, None]
    total, count = sums.metrics[measure + name]
    assert count == counted.sum() > 0
    np.testing.assert_allclose(total, scores[counted].sum(), rtol=1e-4, atol=1e-6)
  total, count = sums.metrics["constant_loss"]
  np.testing.assert_allclose(total / count, constant, rtol=1e-5)


prepare_down4 = jax.jit(of("down4").prepare)


@pytest.mark.parametrize(
  ("name", "options"),
  [
    ("ViT-B/8", dict(positions="relative", scan=True, remat="dots")),
    ("Axial-ViT-B/8", dict(position_place="every_layer_shared")),
    (
      "R50x1+ViT-B/16",
      dict(stages=(1,), patch=2, stem_width=32, pool="gap")
      | dict(positions="2d", position_place="every_layer"),
    ),
  ],
)
def test_every_vit_has_gradients_everywhere(name, options):
  objective = of("down4", models.create(name, **SMALL | dict(depth=1) | options))
  images = np.random.default_rng(0).integers(0, 256, (4, SIDE, SIDE, 3), np.uint8)
  one = prepare_down4(dict(image=images, mask=np.ones(4, np.float32)), KEY)
  assert objective.model.grid(SIDE, SIDE) == MODEL.grid(SIDE, SIDE)  # so `one` is also its batch
  slope = jax.jit(jax.grad(lambda p: objective.loss(p, {}, one, KEY).loss))(params_of(objective))
  for path, leaf in jax.tree_util.tree_leaves_with_path(jax.device_get(slope)):
    name = jax.tree_util.keystr(path)
    # A bias of keys moves all logits of a query alike, which the softmax ignores.
    assert ("key" in name and "bias" in name) or np.any(leaf), name


def test_sums_are_the_same_however_the_batch_is_divided():
  batches = [batch(seed) for seed in range(2)]
  (*_, wanted), expected = run(batches, of(), side=SIDE)
  mesh = steps.mesh_of(2, 4)
  (*_, last), history = run(batches, of(), side=SIDE, mesh=mesh, accumulation=2)
  chex.assert_trees_all_close(history, expected, rtol=1e-4, atol=1e-6)
  chex.assert_trees_all_close(last.params, wanted.params, atol=1e-4)


def test_bfloat16_is_close_and_keeps_float32_parameters():
  objective = of(model=MODEL.clone(dtype=jnp.bfloat16))
  params = params_of(objective)
  loss = lambda objective: float(computed(objective, params, batch())[1].loss)
  assert {x.dtype for x in jax.tree.leaves(params)} == {np.dtype("float32")}
  assert loss(objective) == pytest.approx(loss(of()), rel=0.02)


def test_the_model_alone_has_the_same_initial_parameters():
  images = np.zeros((1, SIDE, SIDE, 3), np.float32)
  both = lambda: (of().init(KEY, SIDE), MODEL.init(KEY, images, train=False)["params"])
  own, whole = jax.jit(both)()
  chex.assert_trees_all_equal(
    {name: own[name] for name in own if name != OBJECTIVE_PARAMS},
    {name: whole[name] for name in whole if name != "head"},
  )


@pytest.mark.parametrize("target", ["down4", "pixels"])
def test_flops_against_the_compiler(target):
  model = models.create("ViT-S/16", depth=4)
  objective = of(target, model)
  images = jax.ShapeDtypeStruct((1, 224, 224, 3), jnp.uint8)
  params = jax.eval_shape(lambda: objective.init(KEY, 224))

  def forward(params, images):
    return objective.predict(params, images, objective.corruption(KEY, images), train=False)

  counted = jax.jit(forward).lower(params, images).cost_analysis()["flops"]
  formula = objective.training_flops(224) / vit_costs.training_flops(1)
  assert 2 * formula == pytest.approx(counted, rel=0.03)


def settings(name="ViT-B/8", side=SIDE, model=None, **objective):
  model = c.Model(name=name, num_classes=1, **model or {})
  return resolved.config(objective=Masked(**objective), model=model, data=c.Data(image_size=side))


@pytest.mark.parametrize(
  ("config", "words"),
  [
    (settings("R50x1"), "R50x1: it has no patch embeddings"),
    (settings(model=dict(pool="map")), "pool=gap"),
    (settings(model=dict(pool="map_with_token")), "pool=class_token"),
    (settings(model=dict(representation_layer=True)), "representation_layer=False"),
    (settings(model=dict(final_norm="pooled")), "final_norm=tokens"),
    (settings(rate=0.05), "rate=0.05 of 9 patches of an image leaves none"),
    (settings(rate=0.0), "raise the rate"),
    (settings("ViT-B/24"), "of 1 patches"),
    (settings("ViT-B/3", target="down4"), "at least 4 pixels"),
    (settings("R26+ViT-B/32", side=240), "image_size=240 is not 8 patches of 32 pixels"),
  ],
)
def test_settings_without_sense_are_refused(config, words):
  with pytest.raises(ConfigError, match=words):
    config.objective.check(config, models.configured(config.model))


def test_the_settings_decide_what_is_predicted_and_of_how_many_patches():
  assert Masked(rate=0.25, target="down4").configured(None, MODEL) == of("down4", rate=0.25)
