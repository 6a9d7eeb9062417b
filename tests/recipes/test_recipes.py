"""Every recipe against Table 3 of the paper, and its shapes without computing."""

import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import pytest

from tests import resolved
from tests.recipes.paper import CONFIGS, docstring, load, table
from vit_jax import config as c
from vit_jax import models, recipes
from vit_jax.config import Dataset
from vit_jax.config.fields import Labels
from vit_jax.data import datasets
from vit_jax.data.sources.base import Block
from vit_jax.extras.experiments.vtab_finetuning import PARTS
from vit_jax.learning import optim, train_step
from vit_jax.recipes.finetuning import TASKS
from vit_jax.training import checks
from vit_jax.weights.card import Card

DATASETS = {"JFT-300M": "jft", "ImageNet-21k": "i21k", "ImageNet": "i1k"}
EXAMPLES = {"JFT-300M": 303_000_000, "ImageNet-21k": 12_400_000, "ImageNet": 1_281_167}
RESNETS = ("resnet", "resnet_sgd")
# Recipes that need no weights; tests/extras/test_distillation.py has the other one.
ALONE = sorted({path.stem for path in CONFIGS.glob("*.py")} - {"distill"})
SHAPES = ("depth", "width", "mlp", "patch", "all")  # and base, the default


def file_of(model, dataset):
  name = model.lower().replace("-", "_").replace("+", "_").replace("/", "")
  return f"{name}_{DATASETS[dataset]}"


def table3():
  """(recipe file, model, epochs, row) for every model of Table 3."""
  for row in table("table3_pretraining.csv"):
    names = row["models"].split(", ")
    if row["models"] == "ViT-*":
      names = ["ViT-B/16", "ViT-B/32", "ViT-L/16", "ViT-L/32"]  # those with results in Table 5
    if "R152x2" in names:
      # In Table 6 alone; our choice are the settings of this row.
      for model in ("R152x2", "R200x3"):
        yield file_of(model, row["dataset"]), model, "14", row
    if row["dataset"] == "ImageNet-21k" and "ViT-L/16" in names:
      names.append("ViT-H/14")  # in Table 5 alone; our choice are the settings of this row
    for model in names:
      for epochs in row["epochs"].split(" or "):
        yield file_of(model, row["dataset"]), model, epochs, row


@pytest.mark.parametrize(("file", "model", "epochs", "row"), list(table3()))
def test_recipe_is_the_row_of_table_3(file, model, epochs, row):
  config = load(file, epochs)
  assert config.model.name == model
  assert config.duration == c.Duration(epochs=float(epochs))
  assert config.schedule.learning_rate == float(row["base_lr"])
  assert config.schedule.decay == row["lr_decay"]
  assert config.optimizer.weight_decay == float(row["weight_decay"])
  assert config.model.dropout == float(row["dropout"])
  # Section 4.1, the same for all rows.
  adam = config.optimizer
  assert (adam.kind, adam.beta1, adam.beta2) == ("adam", 0.9, 0.999)
  assert config.batch_size == 4096
  assert config.schedule.warmup == c.Duration(steps=10_000)
  assert config.data.image_size == 224
  assert config.data.crop_area == (0.05, 1.0)
  assert config.optimizer.clip_norm == (1.0 if row["dataset"] == "ImageNet" else 0.0)
  assert config.model.representation_layer == ("ViT-" in model)
  # The authors' answers.
  sigmoid = row["dataset"] != "ImageNet"
  assert config.loss.kind == ("sigmoid" if sigmoid else "softmax")
  assert config.model.head_bias == (-10.0 if sigmoid else 0.0)
  assert config.schedule.end_learning_rate == (1e-5 if row["lr_decay"] == "linear" else 0.0)
  steps = config.duration.in_steps(batch_size=4096, epoch_examples=EXAMPLES[row["dataset"]])
  assert f"{steps:,} steps" in docstring(file)


@pytest.mark.parametrize("row", table("table6_scaling.csv"), ids=str)
def test_every_run_of_table_6_has_a_recipe_that_quotes_its_result(row):
  file = file_of(row["model"], "JFT-300M")
  assert load(file, row["epochs"]).model.name == row["model"]
  quoted = f"ImageNet {row['ImageNet']}, ReaL {row['ImageNet ReaL']}, CIFAR-100 {row['CIFAR-100']}"
  assert quoted in docstring(file)


def test_no_recipe_is_left_out_of_the_test():
  tested = {file for file, *_ in table3()}
  own = {"vit_digits", "vit_fashion", "masked_fashion", "vit_shape_jft"}
  own |= {"resnet", "resnet_sgd", "jft_subsets"}  # by test_resnets.py and test_jft_subsets.py
  own |= {"finetune", "hyperrule", "vtab", "evaluate", "fashion_halves", "train", "distill"}
  own |= {"simple_vit_s16_i1k", "augreg", "deit3", "mae_finetune"}  # by test_from_scratch.py
  tested |= {"masked_vit_b16_jft", "masked_vit_b16_i1k", "mae", "dino"}  # by test_masked.py
  assert {path.stem for path in CONFIGS.glob("*.py")} - tested == own


@pytest.mark.parametrize(
  ("shape", "depth", "width", "mlp_dim", "patch"),
  [
    ("base", 8, 1024, 2048, 32),
    ("depth", 16, 1024, 2048, 32),
    ("width", 8, 2048, 2048, 32),
    ("mlp", 8, 1024, 4096, 32),
    ("patch", 8, 1024, 2048, 16),
    ("all", 16, 2048, 4096, 16),
  ],
)
def test_shapes_of_figure_8(shape, depth, width, mlp_dim, patch):
  config = load("vit_shape_jft", shape)
  model = models.configured(config.model)
  assert (model.depth, model.width, model.mlp_dim, model.patch) == (depth, width, mlp_dim, patch)
  assert model.width // model.heads == 64
  assert load("vit_shape_jft") == load("vit_shape_jft", "base")
  plain = load("vit_b32_jft")
  for group in ("batch_size", "duration", "loss", "optimizer", "schedule", "data"):
    assert getattr(config, group) == getattr(plain, group)


@pytest.mark.parametrize(
  ("name", "argument"),
  [(name, "") for name in ALONE if name != "evaluate"]
  + [("finetune", f"{model},{task}") for model in ("ViT-H/14", "R50x1") for task in TASKS]
  + [("finetune", "imagenet"), ("finetune", "ViT-B/16,pets,inception"), ("vtab", "ViT-B/16,dmlab")]
  + [("hyperrule", "R50x1,9,small"), ("fashion_halves", "second,ViT-64/7")]
  + [*{(row["recipe"], row["argument"]): None for row in table("from_scratch.csv")}]
  + [("train", "digits,ViT-S/8")],
)
def test_no_setting_of_a_recipe_is_refused(name, argument):
  config = load(name, argument)
  known = dict(images=1_281_167, side=400, labels=Labels("0123456789"))
  if config.new_head or argument.endswith(",finetune"):
    known |= dict(card=Card(image_size=224), architecture=models.expanded(c.Model("ViT-B/16")))
    config = dataclasses.replace(config, init_from=config.init_from or "w.npz")
  checks.check(config, resolved.without_data(config, **known))


@pytest.mark.parametrize(
  ("name", "argument"),
  [
    ("deit3", "B,finetune"),
    ("fashion_halves", "second,ViT-64/7"),
    ("finetune", "ViT-B/16,pets"),
    ("hyperrule", "R50x1,pets"),
    ("mae_finetune", "B"),
    ("vtab", "ViT-B/16,pets"),
  ],
)
def test_fine_tuning_does_not_start_without_weights(name, argument):
  config = load(name, argument)
  known = dict(images=1_281_167, side=400, labels=Labels("0123456789"))
  with pytest.raises(c.ConfigError, match=r"--config\.init_from"):
    checks.check(config, resolved.without_data(config, **known))


def test_an_empty_flag_is_not_the_origin_of_weights():
  config = recipes.resolve("deit3:B,finetune", ["--config.init_from="])
  with pytest.raises(c.ConfigError, match="this recipe needs weights; give"):
    checks.check_weights(config)


WHOLE = set()  # steps that were traced: shortened, several models are the same


@pytest.mark.parametrize(
  ("name", "argument"),
  [(name, "") for name in ALONE if name != "evaluate"]
  + [("vit_shape_jft", shape) for shape in SHAPES]
  + [("deit3", "B,finetune"), ("augreg", "ViT-S/16,medium2,regularised")],
)
def test_shapes_of_a_whole_step(name, argument):
  labels = Labels("0123456789")  # counted where the recipe does not say how many
  known = dict(images=1437, side=16, labels=labels, device=jax.devices()[0])
  config = resolved.without_data(load(name, argument), **known)
  model = config.model
  objective = config.objective.configured(config, shortened(models.configured(model)))
  optimizer = optim.make(config.optimizer)
  rate = optim.learning_rate_schedule(
    learning_rate=1.0, warmup_steps=0, total_steps=9, decay="linear", end_learning_rate=0.0
  )
  what = repr((objective, config.optimizer, config.data, config.batch_size, config.parts))
  if what in WHOLE:
    return
  WHOLE.add(what)
  init = functools.partial(
    train_step.init_state,
    objective,
    optimizer,
    seed=0,
    image_size=config.data.image_size,
    with_ema=bool(config.optimizer.ema),
  )
  before = jax.eval_shape(init)
  size = config.batch_size
  images = {}
  for view, (data, count) in config.objective.views(config.data).items():
    shape = (size, *[count] * bool(count), data.image_size, data.image_size, 3)
    images[view] = jax.ShapeDtypeStruct(shape, jnp.uint8)
  batch = images | dict(
    labels=jax.ShapeDtypeStruct((size, model.num_classes), jnp.uint8),
    mask=jax.ShapeDtypeStruct((size,), jnp.float32),
  )
  step = train_step.make(
    objective, optimizer, rate, config.optimizer, seed=0, accumulation=config.parts
  )
  after, metrics = jax.eval_shape(step, before, batch)
  same = jax.tree.map(lambda a, b: (a.shape, a.dtype) == (b.shape, b.dtype), before, after)
  assert all(jax.tree.leaves(same))
  assert {x.shape for x in metrics.values()} == {()}


def shortened(model):
  """The model with a small block and a unit a stage; more are traced in the same way."""
  fields = {}
  if hasattr(model, "depth"):
    fields = dict(depth=1, width=64, mlp_dim=64, heads=1)
  return model.clone(**fields, stages=model.stages and (1,) * len(model.stages))


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.py")), ids=lambda path: path.stem)
def test_docstring_gives_the_command(path):
  assert f"--config=configs/{path.name}" in docstring(path.stem)


class Records:
  """The part of a dataset of 1,000 records per split that `overlap` uses."""

  def __init__(self, dataset):
    self._dataset = dataset

  def __len__(self):
    return sum(len(block.rows) for block in self.blocks())

  def name(self, index):
    return f"example {index}"

  def blocks(self):
    # Of VTAB's splits, which have names, one is two others.
    split = self._dataset.split.replace("train800val200", "train800+val200")
    for part in split.split("+"):
      name, first, end = re.fullmatch(r"(\w+)(?:\[(?:(\d+)%)?:(?:(\d+)%)?\])?", part).groups()
      items = range(10 * int(first or 0), 10 * int(end or 100))
      yield Block(f"{self._dataset.source} {name}", items, range(len(items)))


@pytest.mark.parametrize(
  ("name", "argument"),
  [(name, "") for name in ALONE]
  + [("evaluate", suite) for suite in recipes.SUITES]
  + [
    ("finetune", f"ViT-B/16,{task}{part}")
    for task in recipes.TASKS
    for part in ("", ",development")
  ]
  + [("hyperrule", f"R50x1,{task}") for task in recipes.TASKS]
  + [("vtab", f"ViT-B/16,svhn,{part}") for part in PARTS],
)
def test_no_recipe_scores_what_it_trains_on(name, argument):
  config = load(name, argument)
  train, specs = config.data.train, config.evaluate.values()
  probes = [spec for spec in specs if len(spec.datasets()) > 1]
  pairs = [(train, spec.scored()) for spec in specs]
  pairs += [(probe.train, probe.test) for probe in probes]
  for pair in pairs:
    if all(dataset.source for dataset in pair):
      assert not datasets.shared_images(*map(Records, pair)), pair
  wrong = Records(Dataset("tfds:a", "train[:60%]")), Records(Dataset("tfds:a", "train[50%:]"))
  assert datasets.shared_images(*wrong).images == 100


TASK_NAMES = r"imagenet, cifar100, cifar10, pets, flowers"
# (recipe, argument, what the message names)
WRONG = [
  ("vtap", "", r"no recipe .*/vtap\.py; nearest: .*/vtab\.py, "),
  ("none/vtab", "", r"no recipe .*/none/vtab\.py; nearest: configs/.*\.py, "),
  ("vit_digits", "3", r"vit_digits\.py:3 cannot be run: .*takes 0 positional arguments"),
  ("vit_l16_jft", "8", "'8' is none of 7, 14"),
  ("vit_shape_jft", "heads", "'heads' is none of base, depth, width, mlp, patch, all"),
  ("evaluate", "imagnet", "'imagnet' is none of imagenet, real"),
  ("evaluate", "a,ViT-X", "ViT-X"),
  ("finetune", "ViT-B/16", r"'ViT-B/16' is not \[MODEL,\]TASK"),
  ("finetune", "ViT-B/16,birds", f"'birds' is none of {TASK_NAMES}"),
  ("finetune", "ViT-B/16,pets,test", r"'test' is none of development, inception, real"),
  ("finetune", "ViT-B/16,pets,inception,inception", r"inception, inception hold one twice"),
  ("finetune", "ViT-B/16,pets,real", r"ReaL has new labels for the validation split of imagenet"),
  ("finetune", "ViT-B/16,imagenet,real,development", r"leave real out for .* development"),
  ("finetune", "ViT-X/16,pets", r"model cannot be used: .*ViT-X/16"),
  ("hyperrule", "R50x1", r"'R50x1' is neither MODEL,TASK.* nor MODEL,EXAMPLES,SIZE"),
  ("hyperrule", "R50x1,birds", f"'birds' is none of {TASK_NAMES}"),
  ("hyperrule", "R50x1,0,small", r"EXAMPLES '0' is not a number of training images"),
  ("hyperrule", "R50x1,1e5,small", r"EXAMPLES '1e5'"),
  ("hyperrule", "R50x1,pets,test", r"'test' is none of development, real"),
  ("hyperrule", "R50x1,9,tiny", r"'tiny' is none of small, large"),
  *((name, "R50x1", "'R50x1' is not MODEL,DATASET") for name in RESNETS),
  *((name, "R50x1,cifar", "'cifar' is none of .*imagenet") for name in RESNETS),
  *((name, "ViT-B/16,imagenet", "'ViT-B/16' is no ResNet; .* R50x1") for name in RESNETS),
  *((name, "R51x1,imagenet", "model cannot be used: .*R51x1") for name in RESNETS),
  ("vtab", "ViT-B/16", "is not MODEL,TASK"),
  ("vtab", "ViT-B/16,birds", "'birds' is none of caltech101"),
  ("vtab", "ViT-B/16,dtd,test", "'test' is none of all, development, smoke"),
  ("vtab", "ViT-Q/16,dtd", "model cannot be used"),
  ("jft_subsets", "ViT-B/32", "'ViT-B/32' is not MODEL,SUBSET"),
  ("jft_subsets", "ViT-B/32,9", "'9' is none of 9M, 30M, 90M, all"),
  ("jft_subsets", "ViT-H/14,9M", "'ViT-H/14' is none of ViT-b/32"),
  ("masked_vit_b16_jft", "2m", "'2m' is none of 1m, 100k"),
  ("masked_vit_b16_jft", "1m,colour", "'colour' is none of mean_color, down4, pixels"),
  ("masked_vit_b16_jft", "1m,pixels,0.3", r"'0.3' is none of 0.5, 0.15"),
  ("masked_vit_b16_jft", "1m,pixels,0.5,9", r"is not LENGTH\[,TARGET\[,RATE\]\]"),
  *(("fashion_halves", words, "argument") for words in ("first", "third,ViT-64/7")),
  ("fashion_halves", "first,ViT-B/16", r"The recipe's argument"),
  ("simple_vit_s16_i1k", "100", "'100' is none of 90, 150, 300"),
  ("augreg", "ViT-S/16", r"'ViT-S/16' is not MODEL,LEVEL\[,regularised\]"),
  ("augreg", "ViT-S/16,heavy", "'heavy' is none of none, light1"),
  ("augreg", "ViT-S/16,none,dropout", "'dropout' is none of regularised"),
  ("deit3", "Ti", "'Ti' is none of S, B, L, H"),
  ("deit3", "S,finetune", "'S' is none of B, L, H"),
  ("deit3", "B,384", "'384' is none of finetune"),
  ("distill", "", r"The recipe needs an argument; give distill:TEACHER,DATA\."),
  ("distill", "w.npz", r"'w\.npz' is not TEACHER,DATA\."),
  ("distill", "none.npz,none", r"is not TEACHER,DATA: neither of the two exists\."),
  ("dino", "L", "'L' is none of S, B"),
  ("mae", "S", "'S' is none of B, L, H"),
  ("mae_finetune", "S", "'S' is none of B, L, H"),
]


@pytest.mark.parametrize(("name", "argument", "message"), WRONG)
def test_what_is_no_recipe(name, argument, message):
  with pytest.raises(c.ConfigError, match=message):
    load(name, argument)


@pytest.mark.parametrize(
  ("argument", "side", "of_all", "resize"),
  [
    ("", c.AUTO, c.AUTO, None),
    ("own,ViT-H/14", c.AUTO, c.AUTO, None),
    ("objectnet", 480, 0, 512 / 480),
    ("objectnet,ViT-H/14", 476, 0, 512 / 480),
    ("variants,R50x1+ViT-B/32", c.AUTO, c.AUTO, 512 / 480),
    ("few_shot,R152x2", 224, 0, 256 / 224),
    ("knn,ViT-H/14", 224, 256, None),
  ],
)
def test_sizes_of_evaluation_suites(argument, side, of_all, resize):
  config = load("evaluate", argument)
  assert (config.data.image_size, config.data.evaluate_resize) == (side, of_all)
  own = {getattr(spec, "resize", c.AUTO) for spec in config.evaluate.values()} - {c.AUTO}
  assert own == ({resize} if resize else set())


def test_every_suite_has_its_line_and_its_data():
  for suite, names in recipes.SUITES.items():
    config = load("evaluate", suite)
    of_head = [name for name, spec in config.evaluate.items() if spec.scores_head]
    assert of_head == sorted(names)
    kinds = {spec.kind for spec in config.evaluate.values()}
    assert ("few_shot" in kinds) == (suite == "few_shot")
    assert ("nearest_neighbours" in kinds) == (suite == "knn")
    assert suite == "own" or f":{suite}" in docstring("evaluate")
    for name, spec in config.evaluate.items():
      flags = [f"--config.evaluate.{name}.train.source=", ".train.split=", ".test.split="]
      assert spec.scores_head or all(flag in docstring("evaluate") for flag in flags)
