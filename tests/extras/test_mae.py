"""Masked autoencoders: draws, loss and gradient, and a run that is fine-tuned and exported."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import ends, reference, resolved
from tests.learning import steps
from tests.learning.test_objective import run
from tests.seams import program
from vit_jax import config as c
from vit_jax import models
from vit_jax.config import ConfigError
from vit_jax.extras import mae
from vit_jax.extras.mae import Settings
from vit_jax.inference import export
from vit_jax.inference import model as inference
from vit_jax.learning.objective import OBJECTIVE_PARAMS
from vit_jax.models import vit_costs
from vit_jax.models.positions import PositionEmbedding
from vit_jax.storage import metrics_log

SIDE, SIZE, PATCHES, KEPT = 32, 16, 16, 4
SMALL = dict(depth=1, width=16, mlp_dim=24, heads=2, positions="sincos2d_mae")
MODEL = models.create("ViT-B/8", **SMALL)
SETTINGS = Settings(decoder_depth=1, decoder_width=8, decoder_heads=2)
OBJECTIVE = SETTINGS.configured(None, MODEL)
KEY = jax.random.key(5)


def batch(seed=0, broken=(3,)):
  one = steps.batch(seed, size=SIZE, side=SIDE, broken=broken)
  return {name: one[name] for name in ("image", "mask")}


def params_of(objective):
  """Parameters without the zeros of a fresh model."""
  shapes = jax.eval_shape(lambda: objective.init(KEY, SIDE))
  leaves, tree = jax.tree.flatten(shapes)
  rng = np.random.default_rng(1)
  return tree.unflatten([np.float32(rng.normal(size=x.shape) * 0.1) for x in leaves])


# --- the patches that are kept ---


@functools.cache
def drawn(seed=0, images=4000):
  draw = jax.jit(functools.partial(mae.draw, patches=20, kept=5))
  return np.array(draw(jax.random.key(seed), places=np.arange(images)))


@pytest.mark.parametrize(
  ("patches", "ratio", "number"), [(196, 0.75, 49), (256, 0.75, 64), (9, 0.75, 2), (10, 0.5, 5)]
)
def test_the_number_is_rounded_down(patches, ratio, number):
  assert mae.kept_of(patches, ratio) == number


def test_all_patches_are_kept_equally_often_and_none_twice():
  assert (np.diff(drawn(), axis=1) > 0).all()
  counts = np.bincount(drawn().ravel(), minlength=20)
  assert abs(counts - 1000).max() < 4 * (4000 * 0.25 * 0.75) ** 0.5
  pairs = np.mean((drawn() == 0).any(axis=1) & (drawn() == 1).any(axis=1))
  assert pairs == pytest.approx(5 * 4 / (20 * 19), abs=4 * (0.053 / 4000) ** 0.5)


def test_draws_depend_on_the_key_and_the_place_alone_and_never_change():
  draw = functools.partial(mae.draw, jax.random.key(0), patches=20, kept=5)
  np.testing.assert_array_equal(draw(places=np.arange(7, 12)), drawn()[7:12])
  assert (drawn(1) != drawn()).any()
  assert drawn()[:2].tolist() == [[3, 4, 10, 13, 15], [4, 6, 10, 14, 18]]


# --- the loss ---


def authors_loss(images, predictions, removed):
  """Mean squared error of normalised pixels over the removed patches of all images, float64."""
  x = np.float64(images).reshape(len(images), 4, 8, 4, 8, 3).swapaxes(2, 3)
  x = x.reshape(len(images), PATCHES, -1) / 127.5 - 1
  x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True, ddof=1) + 1e-6)
  return np.sum(((predictions - x) ** 2).mean(-1) * removed) / removed.sum()


def test_the_loss_is_the_authors():
  rng = np.random.default_rng(0)
  images = batch()["image"]
  images[0, :8, :8] = 77  # an even patch, whose variance is 0
  predictions = rng.normal(size=(SIZE, PATCHES, 8 * 8 * 3))
  kept = np.sort(rng.permuted(np.tile(np.arange(PATCHES), (SIZE, 1)), axis=1)[:, :KEPT])
  kept[0] = (1, 2, 3, 4)
  removed = np.ones((SIZE, PATCHES))
  np.put_along_axis(removed, kept, 0, axis=1)
  found = mae.error(jnp.float32(predictions), OBJECTIVE.targets(images), kept)
  wanted = authors_loss(images, predictions, removed)
  assert np.mean(found, dtype=float) == pytest.approx(wanted, rel=1e-6)


@functools.cache
def computed():
  """Parameters, a prepared batch, its sums and the gradient of the loss."""
  params = params_of(OBJECTIVE)

  @jax.jit
  def both(params):
    prepared = OBJECTIVE.prepare(batch(), KEY)
    sums, back = jax.vjp(lambda p: OBJECTIVE.loss(p, {}, prepared, KEY), params)
    seed = jax.tree.map(jnp.zeros_like, sums)._replace(loss=jnp.ones(()))
    return prepared, sums, *back(seed)

  return params, *jax.device_get(both(params))


def positions(width):
  return np.float64(PositionEmbedding("sincos2d_mae", (4, 4), 1, width).apply({}))


def blocks(params, x):
  x = reference.encoder_block(params["encoderblock_0"], x)
  return reference.layer_norm(params["encoder_norm"], x)


def in_numpy(params, images, kept):
  """The predictions in float64."""
  p = jax.tree.map(np.float64, params)
  x = (np.float64(images) - 127.5) / 127.5
  x = x.reshape(len(x), 4, 8, 4, 8, 3).swapaxes(2, 3).reshape(len(x), PATCHES, -1)
  x = x @ p["embedding"]["kernel"].reshape(8 * 8 * 3, -1) + p["embedding"]["bias"]
  x = np.take_along_axis(x + positions(16)[:, 1:], kept[..., None], axis=1)
  x = np.concatenate([np.broadcast_to(p["cls"], (len(x), 1, 16)), x], axis=1)
  x = blocks(p["Transformer"], x)
  own = p[OBJECTIVE_PARAMS]
  x = x @ own["decoder"]["embedding"]["kernel"][0, 0] + own["decoder"]["embedding"]["bias"]
  whole = np.tile(own["mask_embedding"], (len(x), PATCHES, 1))
  np.put_along_axis(whole, kept[..., None], x[:, 1:], axis=1)
  x = np.concatenate([x[:, :1], whole], axis=1) + positions(8)
  x = blocks(own["decoder"]["Transformer"], x)[:, 1:]
  return reference.dense(own["decoder"]["head"], x)


def test_the_encoder_gets_a_quarter_and_the_decoder_all_against_numpy():
  params, prepared, sums, _ = computed()
  images, mask, kept = (prepared[name] for name in ("image", "mask", "kept"))
  assert kept.shape == (SIZE, KEPT)
  removed = np.ones((SIZE, PATCHES))
  np.put_along_axis(removed, kept, 0, axis=1)
  predictions = in_numpy(params, images, kept)
  wanted = authors_loss(images, predictions, removed * mask[:, None])
  assert sums.loss / sums.count == pytest.approx(wanted, rel=1e-5)
  targets = np.float64(OBJECTIVE.targets(images))[mask > 0].reshape(-1, 8 * 8 * 3)
  total, count = sums.metrics["constant_loss"]
  assert total / count == pytest.approx(targets.var(axis=0).mean(), rel=1e-4)


def test_every_parameter_has_a_gradient():
  *_, slope = computed()
  for path, leaf in jax.tree_util.tree_leaves_with_path(slope):
    name = jax.tree_util.keystr(path)
    # A bias of keys moves all logits of a query alike, which the softmax ignores.
    assert ("key" in name and "bias" in name) or np.any(leaf), name


@functools.cache
def step(data=1, fsdp=1, parts=1):
  """The states before and after a step, and its metrics."""
  mesh = steps.mesh_of(data, fsdp)
  return run([batch()], OBJECTIVE, side=SIDE, mesh=mesh, accumulation=parts)


def test_sums_are_the_same_however_the_batch_is_divided():
  (*_, wanted), expected = step()
  (*_, last), history = step(data=2, fsdp=4, parts=2)
  chex.assert_trees_all_close(history, expected, rtol=1e-4, atol=1e-6)
  chex.assert_trees_all_close(last.params, wanted.params, atol=1e-5)


def test_images_of_other_channels_are_predicted_whole():
  objective = SETTINGS.configured(None, MODEL.clone(channels=4))
  params = jax.eval_shape(lambda: objective.init(KEY, SIDE))
  images = jax.ShapeDtypeStruct((2, SIDE, SIDE, 4), jnp.uint8)
  kept = jax.ShapeDtypeStruct((2, KEPT), jnp.int32)
  found = jax.eval_shape(objective.predict, params, images, kept, KEY)
  assert found.shape == jax.eval_shape(objective.targets, images).shape == (2, PATCHES, 8 * 8 * 4)


def test_flops_against_the_compiler():
  objective = Settings(decoder_depth=2).configured(None, models.create("ViT-S/16", depth=4))
  images = jax.ShapeDtypeStruct((1, 224, 224, 3), jnp.uint8)
  kept = jax.ShapeDtypeStruct((1, 49), jnp.int32)
  params = jax.eval_shape(lambda: objective.init(KEY, 224))
  forward = lambda params, *given: objective.predict(params, *given, KEY)
  counted = jax.jit(forward).lower(params, images, kept).cost_analysis()["flops"]
  formula = objective.training_flops(224) / vit_costs.training_flops(1)
  assert 2 * formula == pytest.approx(counted, rel=0.04)


@pytest.mark.parametrize(
  ("width", "attention", "expected"),
  [
    (512, "cudnn", "cudnn"),
    (64, "cudnn", "xla"),  # 4 channels a head
    (4096, "cudnn", "xla"),  # 256, too many for some GPUs
    (64, "heads_first", "heads_first"),
  ],
)
def test_heads_of_a_decoder_that_cudnn_cannot_compute_are_left_to_xla(width, attention, expected):
  """Whatever those of the encoder are; 16 heads."""
  model = models.create("ViT-B/8", attention=attention)
  assert Settings(decoder_width=width).decoder(model).attention == expected


def settings(name="ViT-B/8", side=SIDE, model=None, **objective):
  model = c.Model(name=name, num_classes=1, **model or {})
  return resolved.config(objective=Settings(**objective), model=model, data=c.Data(image_size=side))


@pytest.mark.parametrize(
  ("config", "words"),
  [
    (settings("R50x1"), "does not suit R50x1: it has no patch embeddings"),
    (settings("R26+ViT-B/32", side=64), "its ResNet shows its neighbours"),
    (settings("Axial-ViT-B/8"), "along the lines of a grid"),
    (settings(model=dict(rotary="axial")), "with the places of patches"),
    (settings(model=dict(positions="relative")), "positions=sincos2d_mae"),
    (settings(model=dict(position_place="every_layer")), "position_place=stem"),
    (settings(model=dict(representation_layer=True)), "representation_layer=False"),
    (settings(model=dict(final_norm="pooled")), "final_norm=tokens"),
    (settings(mask_ratio=0.0), "keeps 16 of the 16 patches"),
    (settings(mask_ratio=0.95), "keeps 0 of the 16 patches"),
    (settings(decoder_heads=3), "kind='mae': heads=3 does not divide"),
  ],
)
def test_settings_without_sense_are_refused(config, words):
  with pytest.raises(ConfigError, match=words):
    config.objective.check(config, models.configured(config.model))


# --- a run ---

WORDS = (
  "--config.objective.kind=mae",
  *(f"--config.objective.decoder_{key}" for key in ("depth=1", "width=8", "heads=2")),
  "--config.evaluate.test.source=",  # it trains no head
  "--config.data.train.label_key=",
  "--config.model.positions=sincos2d_mae",
  "--config.optimizer.ema=0.5",
  "--config.duration.steps=4",
  *("--config.verify_every=2", "--config.checkpoint.every.steps=2"),
)


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
  folder = tmp_path_factory.mktemp("mae") / "run"
  only = jax.devices()[:1]
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(jax, "devices", lambda *_: only)
    assert program.run(folder, *WORDS)
  return folder


@pytest.mark.usefixtures("one_device")
def test_a_stopped_run_goes_on_to_the_same_bits_with_steps_computed_twice(
  pretrained, tmp_path, capsys
):
  ends.copy_as_stopped(pretrained, tmp_path / "parts", step=2)
  assert program.run(tmp_path / "parts", *WORDS)
  assert "Step 3 was computed twice" in capsys.readouterr().out
  ends.assert_equal_ends(tmp_path / "parts", pretrained, step=4)


def test_the_loss_of_the_mean_is_logged(pretrained):
  line = [x for x in metrics_log.read_lines(pretrained) if "loss" in x][-1]
  assert 0 < line["training/constant_loss"] < 1.1


@pytest.mark.usefixtures("one_device")
def test_fine_tuning_learns_the_positions_and_leaves_the_decoder_out(pretrained, tmp_path, capsys):
  words = f"--config.init_from={pretrained}", "--config.new_head=True"
  assert program.run(tmp_path / "run", *words, "--config.duration.steps=1")
  said = capsys.readouterr().out
  assert "dropped  objective/decoder/*" in said
  assert "learned  position embeddings, which begin as the fixed ones" in said
  found = inference.read_model(tmp_path / "run" / "checkpoints" / "1", average=False)
  table = found.params["Transformer"]["posembed_input"]["pos_embedding"]
  wanted = PositionEmbedding("sincos2d_mae", (4, 4), 1, 8).apply({})
  np.testing.assert_allclose(table, wanted, atol=0.02)


def test_export_says_what_it_leaves_out(pretrained, tmp_path):
  model = inference.read_model(pretrained)
  lines = export.write(model, str(pretrained), tmp_path / "w.safetensors")
  names = "objective/decoder, objective/mask_embedding"
  assert f"Left out, because only the training objective needs them: {names}." in lines
  assert not inference.read_model(tmp_path / "w.safetensors").has_head
