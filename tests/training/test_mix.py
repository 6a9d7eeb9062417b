"""Runs on a mix of sources: settings, classes, overlap, the cache, and a resumed run's bits."""

import dataclasses

import chex
import cv2
import jax
import numpy as np
import pytest

from tests import resolved
from tests.learning.hidden_channel import Hidden
from tests.seams.program import StopAfter
from vit_jax import config as c
from vit_jax import launch, recipes
from vit_jax.data.datasets import check_same_classes, class_shares, opener_of
from vit_jax.evaluation.classification import Classification
from vit_jax.evaluation.evaluations import open_alone
from vit_jax.evaluation.nearest_neighbours import Nearest
from vit_jax.extras.commands import cache as tools_cache
from vit_jax.extras.experiments import holdout
from vit_jax.extras.report import messages
from vit_jax.storage import checkpoint, metrics_log
from vit_jax.training import checks, steps
from vit_jax.training import run as runs

MODEL = c.Model(name="ViT-Ti/4", depth=1, width=16, mlp_dim=16, heads=2, num_classes=2)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
  """Folders of 20 and 10 images of the classes a and b."""
  root = tmp_path_factory.mktemp("mix")
  for name, each in (("large", 10), ("small", 5)):
    for label in "ab":
      (root / name / label).mkdir(parents=True)
      for index in range(each):
        cv2.imwrite(str(root / name / label / f"{index}.png"), pixels(each, index))
  return f"folder:{root / 'large'}", f"folder:{root / 'small'}"


def pixels(each, index):
  """An image in `folders`."""
  return np.random.default_rng((each, index)).integers(0, 256, (8, 8, 3), np.uint8)


def run(mix, *, data=None, **more):
  data = c.Data(mix=mix, image_size=8, threads=1, **(data or {}))
  settings = dict(batch_size=8, duration=c.Duration(epochs=2), model=MODEL) | more
  return resolved.config(data=data, **settings)


@pytest.fixture
def two(folders):
  large, small = folders
  return {"small": c.Weighted(small, weight=3), "large": c.Weighted(large, weight=2)}


def refused(config, act=runs.open_data):
  with pytest.raises(c.ConfigError) as caught:
    act(config)
  assert "\n" not in str(caught.value)
  return str(caught.value)


def test_an_epoch_is_as_long_as_all_sources_together(two):
  config = run(two)
  resolved.checked(config)
  data = runs.open_data(config)
  assert (len(data.train), data.train.class_names) == (30, ("a", "b"))
  assert steps.durations_in_steps(config, len(data.train)).total == round(2 * 30 / 8)
  made = runs.make(config, data, jax.devices()[:1])
  assert messages.mix(made) == (
    "The training images are a mix: large 40.00% (20 images, each seen 1.28 times), "
    "small 60.00% (10 images, each seen 3.84 times)\n"
  )


def test_a_run_that_goes_on_tells_how_often_images_of_a_mix_still_come(two):
  """By the weights of now, whatever they were before."""
  config = run(two)
  made = runs.make(config, runs.open_data(config), jax.devices()[:1])
  later = made.after(steps.ImageCount(3, 24), ())
  assert messages.mix(later) == (
    "The training images are a mix: large 40.00% (20 images, each seen 0.80 more times), "
    "small 60.00% (10 images, each seen 2.40 more times)\n"
  )


def test_batches_have_the_shares_of_the_weights(two):
  config = run(two, data=dict(crop_area=(1.0, 1.0), crop_aspect=(1.0, 1.0)))
  made = resolved.run(config, jax.devices()[:1])
  reader = made.reader.training(made.data.train, parts=made.data.parts, seed=0, start=0)
  assert [(part.examples, part.weight) for part in made.data.parts] == [(20, 2), (10, 3)]
  batches = [next(reader) for _ in range(125)]  # 1,000 images: a block, which holds whole shares
  reader.close()
  sums = [int(pixels(each, index).sum()) for each in (10, 5) for _ in "ab" for index in range(each)]
  large, small = set(sums[:20]), set(sums[20:])
  seen = [int(image.sum()) for batch in batches for image in batch["image"]]  # as if not flipped
  assert sum(one in large for one in seen) == 400
  assert sum(one in small for one in seen) == 600
  first = made.reader.first_training(made.data.train, parts=made.data.parts, seed=0, count=8)
  assert [int(item.row["image"].sum()) for item in first] == seen[:8]


def test_a_source_that_is_empty_is_left_out(two, folders):
  mix = two | {"none": c.Weighted(weight=9.0)}
  assert len(runs.open_data(run(mix)).parts) == 2
  alone = runs.open_data(run({"none": c.Weighted(), "only": c.Weighted(folders[0], weight=7)}))
  plain = runs.open_data(run({}, data=dict(train=c.Dataset(folders[0]))))
  assert alone.train.identity == plain.train.identity
  made = runs.make(run({}), plain, jax.devices()[:1])
  assert not messages.mix(made)


@pytest.mark.parametrize(
  ("train", "given", "flags"),
  [
    (c.Dataset("digits"), "source='digits'", "source="),
    (c.Dataset(split="train"), "split='train'", "split="),
    (c.Dataset(subset=5, label_key=""), "label_key='', config.data.train.subset=5", "subset=0"),
  ],
)
def test_a_mix_stands_alone(two, train, given, flags):
  said = refused(run(two, data=dict(train=train)), checks.check_given)
  assert said.startswith(f"config.data.train.{given} cannot be given beside config.data.mix (lar")
  assert f"--config.data.train.{flags}" in said
  assert "config.data.mix" in refused(run({"none": c.Weighted()}), checks.check_given)


@pytest.mark.parametrize("weight", [0, -1.0, float("nan"), float("inf"), "3"])
def test_weights_are_numbers_above_0(weight):
  values = c.to_dict(run({"mine": c.Weighted("digits")}))
  values["data"]["mix"]["mine"]["weight"] = weight
  assert refused(values, c.from_dict).startswith("config.data.mix.mine.weight=")


def test_sources_of_other_classes_are_named(two, tmp_path):
  for label in "ac":
    (tmp_path / label).mkdir()
    (tmp_path / label / "1.png").touch()
  bare = dataclasses.replace(two["small"], label_key="")
  for added, words in (
    (
      {"other": c.Weighted(f"folder:{tmp_path}", weight=1)},
      "mix.other .* class 1 is 'c' there and 'b' in",
    ),
    ({"small": bare}, r"mix\.small\.label_key is empty"),
    ({"gone": c.Weighted("folder:/nowhere", weight=1)}, r"mix\.gone: There is no folder"),
  ):
    with pytest.raises(c.ConfigError, match=rf"config\.data\.{words}"):
      runs.open_data(run(two | added))
  datasets = opener_of(run(two).data).training(run(two).data, labelled=True).datasets
  datasets[1].source.multi_label = True
  with pytest.raises(c.ConfigError, match=r"^Images of config\.data\.mix\.small .* any number of"):
    check_same_classes(datasets)


def test_classes_in_another_order_are_numbered_as_in_the_first_source(tmp_path):
  for label in ("9", "10"):  # a folder sorts them as text, a table as numbers
    (tmp_path / "folder" / label).mkdir(parents=True)
    (tmp_path / "folder" / label / "1.png").touch()
  for name in "123":
    (tmp_path / f"{name}.png").touch()
  (tmp_path / "list.csv").write_text("1.png,9\n2.png,9\n3.png,10\n")
  mix = {"a": c.Weighted(f"folder:{tmp_path}/folder"), "b": c.Weighted(f"csv:{tmp_path}/list.csv")}
  data = run(mix).data
  opened = opener_of(data).training(data, labelled=True)
  assert [one.source.class_names for one in opened.datasets] == [("10", "9")] * 2
  assert opened.source.class_names == ("10", "9")
  assert [opened.source.labels(row) for row in range(5)] == [(0,), (1,), (1,), (1,), (0,)]
  assert class_shares(opened, threads=1) == pytest.approx(
    [(1 / 2 + 1 / 3) / 2, (1 / 2 + 2 / 3) / 2]
  )


@pytest.mark.parametrize(
  ("size", "repeats", "said"),
  [
    (31, 1, "more than the 30 training images of"),
    (20, 1, "a batch takes 12.0 of them at config.data.mix.small.weight=3"),
    (20, 1, "config.batch_size at most 16."),
    (93, 3, ", 3 times each; the most is 90."),
    (51, 3, "config.batch_size at most 48."),
  ],
)
def test_a_batch_takes_no_more_of_a_source_than_it_has(two, size, repeats, said):
  """Images that a batch has several times count once."""
  assert said in refused(run(two, batch_size=size, data=dict(repeats=repeats)))
  runs.open_data(run(two, batch_size=16 * repeats, data=dict(repeats=repeats)))


def test_no_source_of_a_mix_is_scored(two, folders):
  large, small = folders
  for name, source in (("large", large), ("small", small)):
    test = Classification(source, "[80%:]")
    said = refused(run(two, evaluate={"test": test}))
    assert said.startswith(f"config.data.mix.{name} ({source}) and config.evaluate.test (")
  part = two | {"large": c.Weighted(large, weight=2, split="[:80%]")}
  runs.open_data(run(part, evaluate={"test": Classification(large, "[80%:]")}))
  nearest = {"x": Nearest(c.Dataset(large), c.Dataset(small))}
  said = refused(run(two, evaluate=nearest))
  assert said.startswith(f"config.data.mix.small ({small}) and config.evaluate.x.test (")
  known = runs.open_data(run(two)).current
  config = run({}, evaluate={"test": Classification(small, "[80%:]")})
  said = refused(config, lambda it: open_alone(it, known))
  assert f"teacher were trained on ({small}) and config.evaluate" in said


def test_a_mix_can_be_cached(two, tmp_path):
  cached = lambda mix: run(mix, data=dict(cache=str(tmp_path / "cache"), cache_side=8))
  assert "There is no cache" in refused(cached(two))
  tools_cache.prepare(cached(two))
  ours, plain = (runs.open_data(one).train for one in (cached(two), run(two)))
  for index in range(30):
    assert ours[index].name == plain[index].name
    assert ours[index].labels == plain[index].labels
  runs.open_data(cached(two | {"small": dataclasses.replace(two["small"], weight=5.0)}))
  assert "is of other images" in refused(cached({"large": two["large"]}))


def test_no_source_of_a_mix_is_chosen_by(folders, tmp_path):
  (tmp_path / "mixed.py").write_text(RECIPE.format(*folders))
  resolve = lambda parts, *words: recipes.resolve(f"{tmp_path / 'mixed.py'}:{parts}", words)
  judged = lambda parts: holdout.ScoredRun(parts, resolve(parts), "test/top1")
  final = judged("[:80%]|[80%:]")
  holdout.check(judged("[:60%]|[60%:80%]"), final)
  with pytest.raises(c.ConfigError, match=r"trains on folder:.*small \[:90%\], and .* but both"):
    holdout.check(judged("[:90%]|[60%:80%]"), final)
  config = resolve("|", "--config.data.mix.a.weight=0.5")
  assert [one.weight for one in config.data.mixed().values()] == [0.5, 1.0]
  assert recipes.examples_of(config) is None  # not the paper's ImageNet-1k


RECIPE = """
from vit_jax.config import Config, Data, Dataset, Duration, Weighted, to_config_dict
from vit_jax.evaluation.classification import Classification

def get_config(parts):
  train, scored = parts.split("|")
  mix = {{"a": Weighted("{0}", weight=2.0), "b": Weighted("{1}", train)}}
  sets = {{"test": Classification("{1}", scored)}}
  data = Data(mix=mix)
  return to_config_dict(Config(duration=Duration(steps=1), data=data, evaluate=sets))
"""


def test_a_resumed_run_on_images_without_labels_has_the_same_bits(two, tmp_path):
  """The order in which a recipe names the sources does not matter."""
  bare = {name: dataclasses.replace(one, label_key="") for name, one in two.items()}

  def trained(mix, folder, stop=None):
    every = dict(log_every=c.Duration(steps=1), evaluate_every=c.Duration())
    config = run(mix, duration=c.Duration(steps=6), objective=Hidden(), **every)
    resolved.checked(config)
    made = resolved.run(config, jax.devices()[:1])
    assert launch.train(made, tmp_path / folder, StopAfter(stop)) == (stop is None)

  trained(bare, "whole")
  trained(bare, "parts", stop=3)
  trained(dict(reversed(bare.items())), "parts")
  folders = [tmp_path / name for name in ("whole", "parts")]
  ends = [checkpoint.load_params(checkpoint.find(folder, 6), ema=False) for folder in folders]
  chex.assert_trees_all_equal(*ends)
  losses = [[line["loss"] for line in metrics_log.read_lines(folder)] for folder in folders]
  assert losses[0] == losses[1]
  assert len(set(losses[0])) == 6
