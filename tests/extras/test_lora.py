"""LoRA: low-rank changes of frozen kernels, in training, in evaluation and in exported weights."""

import dataclasses
import functools
import re

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vit_jax
from tests import ends, modules, programs, resolved
from tests.golden import weights as golden
from tests.learning import steps
from tests.seams import program
from vit_jax import config as c
from vit_jax import models, weights
from vit_jax.data import images
from vit_jax.data.sources import digits
from vit_jax.devices import mesh as meshes
from vit_jax.extras import lora, settings
from vit_jax.inference import export
from vit_jax.learning import objective as objectives
from vit_jax.learning.classification import Classification
from vit_jax.learning.objective import Objective, Sums
from vit_jax.learning.optimizers.lamb import LAMB
from vit_jax.models.stacking import stack_blocks
from vit_jax.storage import checkpoint, metrics_log
from vit_jax.storage.tree import flatten, name_of, nest
from vit_jax.training import checks

SHAPES = {
  "head/kernel": (5, 3),
  "head/bias": (3,),
  "Transformer/encoderblock_0/MultiHeadDotProductAttention_1/query/kernel": (6, 2, 3),
  "Transformer/encoderblock_0/MultiHeadDotProductAttention_1/out/kernel": (2, 3, 6),
  "Transformer/encoderblock_0/MlpBlock_3/Dense_0/kernel": (6, 8),
  "Transformer/encoderblock_0/MlpBlock_3/Dense_1/kernel": (8, 6),
}
MATRICES = {"query": (6, 6), "out": (6, 6), "Dense_0": (6, 8)}


@dataclasses.dataclass(frozen=True)
class Sines(Objective):
  """The sum of sin(x w) over all parameters w; the model is of no matter."""

  model = None

  def init(self, key, image_size):
    del key, image_size
    params = {name: jnp.float32(x) for name, x in golden.make(SHAPES).items()}
    return nest(params)

  def loss(self, params, extra, batch, key):
    total = sum(jnp.sum(jnp.sin(batch["x"] * w)) for w in jax.tree.leaves(params))
    return Sums(total, jnp.float32(1), {})


def test_the_loss_and_the_gradients_of_a_and_b_against_numpy():
  asked = settings.LoRA(rank=2, alpha=3.0, kernels=".*/(query|out|Dense_0)/kernel")
  objective = lora.LoRA(Sines(), asked)
  first = objective.init(jax.random.key(0), 0)
  names = [name for name in SHAPES if re.fullmatch(asked.kernels, name)]
  of_kernel = lambda name: name.removesuffix("/kernel")
  for name in names:
    inputs, outputs = MATRICES[of_kernel(name).rpartition("/")[2]]
    made = flatten(first["lora"])
    assert made[f"{of_kernel(name)}/a/kernel"].shape == (inputs, 2)
    assert made[f"{of_kernel(name)}/a/kernel"].std() == pytest.approx(inputs**-0.5, rel=0.5)
    np.testing.assert_array_equal(made[f"{of_kernel(name)}/b/kernel"], np.zeros((2, outputs)))
  assert len(flatten(first["lora"])) == 6
  params = nest(golden.make({name: x.shape for name, x in flatten(first).items()}))
  loss = jax.jit(jax.value_and_grad(lambda p: objective.loss(p, {}, {"x": 1.5}, None).loss))
  value, grads = loss(params)
  total = 0.0
  for name, w in flatten(params).items():
    whole = np.float64(w)
    if name.startswith("lora/"):
      continue
    if name in names:
      a, b = (np.float64(flatten(params)[f"lora/{of_kernel(name)}/{x}/kernel"]) for x in "ab")
      whole = whole + 3 / 2 * (a @ b).reshape(whole.shape)
      by_w = (1.5 * np.cos(1.5 * whole)).reshape(len(a), -1)
      for key, wanted in (("a", 3 / 2 * by_w @ b.T), ("b", 3 / 2 * a.T @ by_w)):
        found = flatten(grads)[f"lora/{of_kernel(name)}/{key}/kernel"]
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    total += np.sin(1.5 * whole).sum()
  np.testing.assert_allclose(value, total, rtol=1e-5)
  exact = lora.LoRA.merged(params, dataclasses.asdict(asked))
  chex.assert_trees_all_close(objective.for_model(jax.device_put(params)), exact, atol=1e-6)
  stacked = stack_blocks(params)  # as config.model.scan has them
  chex.assert_trees_all_close(
    lora.LoRA.merged(stacked, dataclasses.asdict(asked)), stack_blocks(exact), atol=1e-7
  )


def test_gradients_on_eight_devices_are_those_on_one():
  """Parameters are split over fsdp and model, and each A and B with them or not at all."""
  objective = lora.LoRA(Sines(), settings.LoRA(rank=2))
  shapes = jax.eval_shape(objective.init, jax.random.key(0), 0)
  params = nest(golden.make({name: x.shape for name, x in flatten(shapes).items()}))
  mesh = steps.mesh_of(2, 2, 2)
  split = meshes.shardings(mesh, params, params, models.create("ViT-Ti/4").sharding)
  grad = jax.jit(jax.grad(lambda p: objective.loss(p, {}, {"x": 1.5}, None).loss))
  chex.assert_trees_all_close(grad(jax.device_put(params, split)), grad(params), rtol=1e-5)


TUNED = steps.changed(
  init_from="w.npz",
  lora=settings.LoRA(rank=2),
  model=dict(depth=2, width=16, mlp_dim=32, heads=2, scan=True, remat="everything"),
)


def test_the_loss_of_stacked_blocks_on_eight_devices_is_that_of_merged_kernels():
  plain = Classification(models.configured(TUNED.model))
  objective = lora.LoRA(plain, TUNED.lora)
  shapes = objectives.initial_shapes(objective, 16)
  params = nest(golden.make({name: x.shape for name, x in flatten(shapes).items()}))
  mesh = steps.mesh_of(2, 2, 2)
  one = jax.device_put(steps.BATCHES[0], meshes.batch_sharding(mesh))

  @functools.partial(jax.jit, static_argnums=0)
  def loss(objective, params):
    return objective.loss(params, {}, one, jax.random.key(0)).loss

  def split(params):
    return jax.device_put(params, meshes.shardings(mesh, params, params, plain.model.sharding))

  with_changes = split(params)
  merged = lora.LoRA.merged(params, dataclasses.asdict(TUNED.lora))
  found, wanted = (meshes.on(mesh, loss)(*x) for x in ((objective, with_changes), (plain, merged)))
  np.testing.assert_allclose(found, wanted, rtol=1e-6)
  on_devices = objective.for_model(with_changes)
  chex.assert_trees_all_close(on_devices, merged, atol=1e-6)
  of_kernels = jax.tree.map(lambda x: x.sharding, on_devices)
  chex.assert_trees_all_equal(of_kernels, jax.tree.map(lambda x: x.sharding, split(merged)))


# --- a run ---

OF_MODEL = dict(name="ViT-Ti/4", depth=1, width=8, mlp_dim=8, heads=2, num_classes=10)
MATRICES_IN_ALL = 4 * (8 * 2 + 2 * 8) + 2 * (8 * 2 + 2 * 8)
HEAD = 8 * 10 + 10


@pytest.fixture(scope="module")
def path(tmp_path_factory):
  """Weights to start from."""
  module = models.create(**OF_MODEL)
  params = modules.parameters(module, np.zeros((1, 16, 16, 3), np.float32), train=False)
  place = tmp_path_factory.mktemp("weights") / "w.npz"
  weights.save(place, params)
  return place


@pytest.mark.usefixtures("one_device")
def test_a_run_resumes_bit_exactly_and_its_weights_have_the_changes_in_them(path, tmp_path, capsys):
  whole, parts = tmp_path / "whole", tmp_path / "parts"
  words = (f"--config.init_from={path}", "--config.lora.rank=2", "--config.duration.steps=4")
  assert program.run(whole, *words, "--config.checkpoint.every.steps=2")
  told = capsys.readouterr().out
  assert f"({MATRICES_IN_ALL + HEAD} of them trained)" in told
  ends.copy_as_stopped(whole, parts, step=2)
  with pytest.raises(c.ConfigError, match=r"config\.lora\.alpha: 16\.0 -> 8\.0 only counts from"):
    program.run(parts, *words, "--config.lora.alpha=8")
  assert program.run(parts, *words, "--config.evaluate.test.source=")
  chex.assert_trees_all_equal(*(ends.final_state(run, 4)[0] for run in (whole, parts)))
  # The weights: the frozen ones with their changes, and nothing else.
  kept = flatten(checkpoint.load_params(checkpoint.find(whole), ema=True))
  before = flatten(weights.load(path))
  loaded = vit_jax.load(whole)
  merged = flatten(loaded.read.params)
  assert merged.keys() == before.keys()
  for name, x in before.items():
    if not name.startswith("head/"):
      np.testing.assert_array_equal(kept[name], x)
  changed = {name for name, x in before.items() if not np.array_equal(merged[name], x)}
  kernels = {name for name in before if "encoderblock" in name and name.endswith("/kernel")}
  assert changed == kernels | {"head/kernel", "head/bias"}
  # Logits with the changes beside the kernels, and merged, exported and read again.
  pictures, labels = scored_digits()
  objective = lora.LoRA(Sines(), settings.LoRA(rank=2))
  beside = objective.for_model(jax.device_put(nest(kept)))
  wanted = modules.run(loaded.module, beside, pictures)[0]
  for name in ("out.npz", "out.safetensors"):
    export.write(loaded, str(whole), tmp_path / name)
    again = vit_jax.load(tmp_path / name)
    assert not any("lora" in array for array in flatten(again.read.params))
    logits = modules.run(again.module, again.params, pictures)[0]
    np.testing.assert_allclose(logits, wanted, atol=1e-6 * np.abs(wanted).max())
  # The run was evaluated with the changes.
  (line,) = [x for x in metrics_log.read_lines(whole) if "test/loss" in x]
  log_p = jax.nn.log_softmax(wanted)[np.arange(len(labels)), labels]
  assert line["test/loss"] == pytest.approx(float(-log_p.mean()), rel=1e-5)


def scored_digits():
  """The images of the run's test set as it prepares them, in [-1, 1], and their labels."""
  source = digits.Digits(split="test")
  pixels = [images.evaluate_image(x.image, size=16, resize=0, max_pixels=64) for x in source]
  return np.float32(pixels) / 127.5 - 1, np.array([x.labels[0] for x in source])


# --- refusals ---


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    (dict(rank=17), r"rank=17 is more than the kernel Transf.*_0/kernel of 16 x 32 .*most is 16\."),
    (dict(kernels="("), r"lora\.kernels='\(' is not a regex"),
    (
      dict(kernels=".*/quer/kernel"),
      r"'\.\*/quer/kernel' matches no kernel in the blocks of ViT-Ti/4; nearest: .*query/kernel",
    ),
  ],
)
def test_settings_that_do_not_suit_the_kernels(changes, message):
  asked = dataclasses.replace(settings.LoRA(rank=2), **changes)
  with pytest.raises(c.ConfigError, match=message):
    checks.check_parametrizations(dataclasses.replace(TUNED, lora=asked))


def test_kernels_of_relative_positions_stay_as_they_are():
  """Those of their MLP have few inputs, so that no usual rank would suit the model."""
  of_model = dict(positions="relative_mlp", relative_dim=8, mlp="gated")
  config = steps.changed(TUNED, model=of_model, lora=dict(rank=8))
  checks.check_parametrizations(config)
  names = flatten(objectives.shapes(config))
  assert any("/relative_bias/Dense_0/kernel" in name for name in names)
  changed = [name.split("/")[-3] for name in names if name.endswith("/a/kernel")]
  assert sorted(changed) == ["Dense_0", "Dense_1", "key", "out", "query", "value"]


def test_a_page_names_the_kernels_that_change_and_how_a_gated_mlp_gets_all_of_them():
  page = (programs.ROOT / "docs/fine-tuning.md").read_text(encoding="utf-8")
  (pattern,) = re.findall(r"Dense_gate.*--config\.lora\.kernels='([^']+)'", page)
  names = [name.replace("Dense_0", "Dense_gate") for name in SHAPES] + [*SHAPES]
  of_blocks = {name for name in names if "encoderblock" in name}
  assert {*lora.chosen(names, pattern)} == of_blocks
  assert {*lora.chosen(names, settings.LoRA().kernels)} == {n for n in of_blocks if "gate" not in n}


@pytest.mark.usefixtures("one_device")
def test_new_pooling_stays_not_as_it_was_drawn(path, tmp_path):
  words = (
    f"--config.init_from={path}",
    "--config.lora.rank=2",
    "--config.model.pool=map_with_token",
  )
  given = r"--config\.optimizer\.trainable='(\(head\|.*\|lora\)/\.\*\|MAPHead_0/\.\*)'"
  with pytest.raises(c.ConfigError, match=given) as refused:
    program.run(tmp_path / "run", *words)
  pattern = re.search(given, str(refused.value))[1]
  assert program.run(
    tmp_path / "run",
    *words,
    f"--config.optimizer.trainable={pattern}",
    "--config.duration.steps=1",
    "--config.schedule.warmup.steps=0",
    "--config.evaluate.test.source=",
  )


def test_settings_that_do_not_suit_the_run():
  checks.check_parametrizations(TUNED)
  alone = steps.changed(TUNED, optimizer=dict(trainable="head/.*"))
  resnet = dataclasses.replace(TUNED, model=resolved.model(name="R50x1", stages=(1,)))
  for config, message in (
    (dataclasses.replace(TUNED, init_from=""), r"rank=2 changes given weights, and there are none"),
    (alone, r"trainable='head/\.\*' matches nothing of LoRA, such as lora/Tr.*; add \|lora/\.\*"),
    (resnet, r"matches no kernel in the blocks of R50x1; it has none"),
  ):
    with pytest.raises(c.ConfigError, match=message):
      checks.check_parametrizations(config)
  new = {name_of(path) for path, _ in jax.tree_util.tree_leaves_with_path(objectives.shapes(TUNED))}
  with pytest.raises(c.ConfigError, match=r"kind='lamb' .* so lora/.*/b/kernel, .* hardly learns"):
    LAMB().check_start(steps.changed(TUNED, model=dict(head_std=0.1)), new)
