"""A user's own images: what is chosen from them, and that it trains, fine-tunes and evaluates."""

import dataclasses
import json
import re

import cv2
import numpy as np
import pytest

from tests import programs, resolved
from tests.data.tfds_fixture import write_single_label_tfds
from tests.recipes.paper import load
from vit_jax import launch, recipes
from vit_jax.config import AUTO, ConfigError, Data, scales
from vit_jax.config.as_recipe import as_recipe
from vit_jax.data import sample, sources
from vit_jax.devices.hosts import Hosts
from vit_jax.evaluation import evaluations
from vit_jax.process.console import StopRequest
from vit_jax.recipes import loading, own_images

SHORT = ("--config.duration.steps=3", "--config.schedule.warmup.steps=1")
SMALL = ("--config.model.depth=1",)


def draw(folder, *, classes="ab", images=20, side=12):
  """Pictures of noise, dark in the first class."""
  rng = np.random.default_rng(0)
  for place, name in enumerate(classes):
    (folder / name).mkdir(parents=True)
    for i in range(images):
      pixels = rng.integers(100 * place, 100 * place + 90, (side, side + 4, 3), np.uint8)
      cv2.imwrite(str(folder / name / f"{i}.png"), pixels)
  return folder


def run(recipe, folder, *words, mode="train"):
  return launch.launch(
    recipes.resolve(recipe, words), folder, StopRequest(), mode=mode, hosts=Hosts()
  )


@pytest.mark.usefixtures("one_device")
def test_one_line_trains_fine_tunes_and_evaluates(tmp_path, capsys):
  photos, workdir = draw(tmp_path / "photos"), tmp_path / "run"
  assert run(f"configs/train.py:{photos}", workdir, *SHORT, *SMALL)
  printed = capsys.readouterr().out
  assert "model.name              ViT-Ti/4" in printed
  assert "duration                3 steps" in printed
  assert re.search(r"model\.positions +sincos2d +36 training images", printed)
  assert printed.count("the command line") == 3  # the length, the warm-up and the depth
  assert "held_out: top-1" in printed
  assert run(f"configs/finetune.py:{workdir},{photos}", tmp_path / "tuned", *SHORT)
  assert re.search(rf"data\.image_size +16 +{workdir}", capsys.readouterr().out)
  others = draw(tmp_path / "others", classes="ba")
  run(f"configs/evaluate.py:{workdir},{others}", tmp_path / "scores", mode="evaluate")
  assert json.loads((tmp_path / "scores/evaluation.json").read_text())["own/top1"] <= 1
  with pytest.raises(ConfigError, match=r"36 images .* in common"):
    run(f"configs/evaluate.py:{workdir},{photos}", tmp_path / "more", mode="evaluate")


def test_folders_called_train_and_test_are_parts(tmp_path):
  for name in ("Train", "test", "val"):
    draw(tmp_path / name, images=8)
  config = own_images.train(str(tmp_path))
  assert (config.data.train.source, config.data.train.split) == (f"folder:{tmp_path}/Train", "")
  assert config.evaluate["held_out"].source == f"folder:{tmp_path}/val"
  scored = own_images.evaluation("weights.npz", str(tmp_path)).evaluate["own"]
  assert scored.source == f"folder:{tmp_path}/test"


def test_how_to_hold_nothing_out(tmp_path):
  flags = "--config.data.train.split=", "--config.evaluate.held_out.source="
  page = (programs.ROOT / "docs/fine-tuning.md").read_text(encoding="utf-8")
  assert f"`{' '.join(flags)}`" in page
  config = recipes.resolve(f"configs/train.py:{draw(tmp_path)}", flags)
  assert not config.data.train.split
  assert not evaluations.names(config)


def test_a_class_called_train_is_a_class(tmp_path):
  for name in ("bus", "train", "tram"):
    draw(tmp_path / name, images=4)  # with folders inside
  assert own_images.train(str(tmp_path)).data.train.split == "[:90%]"


def test_data_with_splits_is_scored_on_them():
  config = own_images.train("digits")
  assert (config.data.train.split, config.evaluate["held_out"].split) == ("train", "test")
  assert resolved.with_data(config).data.image_size == 16


def test_paths_may_have_commas(tmp_path):
  """As the default workdir of a run with a chosen model has."""
  odd, run = draw(tmp_path / "a,b", images=4), tmp_path / "train-a,ViT-S_16"
  run.mkdir()
  assert loading.data_and_model(f"{odd}") == (f"{odd}", "")
  assert loading.data_and_model(f"folder:{odd}") == (f"folder:{odd}", "")
  assert loading.data_and_model(f"{odd},ViT-S/16") == (f"{odd}", "ViT-S/16")
  assert loading.data_and_model("wds:{a,b}.tar") == ("wds:{a,b}.tar", "")
  assert loading.data_and_model("wds:{a,b}.tar,ViT-S/16") == ("wds:{a,b}.tar", "ViT-S/16")
  for data in (str(odd), "wds:{a,b}.tar", "digits"):
    assert loading.weights_and_data(f"{run},{data}") == (str(run), data)
  assert loading.weights_and_data(f"{run},{odd}/none") is None
  (evaluated,) = recipes.load(f"configs/evaluate.py:{run},{odd}").evaluate.values()
  assert evaluated.source == f"folder:{odd}"
  assert recipes.load(f"configs/train.py:{odd}").data.train.source == f"folder:{odd}"


def test_images_with_any_number_of_labels_have_the_sigmoid(tmp_path):
  draw(tmp_path, images=6)
  table = tmp_path / "list.csv"
  table.write_text("".join(f"a/{i}.png,{label}\n" for i, label in enumerate(["a", "a|b", "b"] * 2)))
  config = resolved.with_data(own_images.train(str(table)))
  assert config.loss.kind == "sigmoid"
  assert ("loss.kind", "images have any number of labels") in config.origins
  assert ("data.train", "a random tenth is scored, and not trained on") in config.origins
  table.write_text(table.read_text().replace("a|b", "b"))
  assert resolved.with_data(own_images.train(str(table))).loss.kind == "softmax"


def test_small_models_have_the_shapes_of_small_recipes():
  shape = lambda recipe, argument: vars(load(recipe, argument).model)
  assert scales.DIGITS.items() <= shape("vit_digits", "").items()
  assert scales.FASHION.items() <= shape("vit_fashion", "plain").items()
  assert scales.FASHION.items() <= shape("masked_fashion", "").items()


def test_a_tenth_of_a_dataset_of_tfds_is_none_of_each_class(tmp_path, monkeypatch):
  monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
  name = write_single_label_tfds(tmp_path, num_examples=40, num_classes=2, seed=0)
  monkeypatch.setattr(sources, "named_parts", lambda spec: {"train": (spec, "train")})
  config = own_images.train(f"tfds:{name}")
  assert ("data.train", "a random tenth is scored, and not trained on") in config.origins


def test_columns_that_are_not_found_are_named_behind_the_data(tmp_path):
  draw(tmp_path, images=6)
  table = tmp_path / "my list,1.csv"
  rows = [f"{place},{place}/{i}.png,{'xy'[i % 2]}" for place in "ab" for i in range(6)]
  table.write_text("\n".join(["site,photo,the species,", *(f"{row}," for row in rows)]))
  with pytest.raises(ConfigError, match=r"has the columns .* DATA,label_key=NAME .* name them\."):
    recipes.load(f"configs/train.py:{table}")
  config = recipes.load(f"configs/train.py:{table},ViT-S/4,label_key=the species,image_key=photo")
  for part in (config.data.train, config.evaluate["held_out"]):
    assert (part.source, part.label_key, part.image_key) == (f"csv:{table}", "the species", "photo")
  assert config.model.name == "ViT-S/4"
  assert ("model.num_classes", "the data: 'x', 'y'") in resolved.with_data(config).origins
  scored = recipes.load(f"configs/evaluate.py:w.npz,{table},label_key=site").evaluate["own"]
  assert (scored.source, scored.label_key) == (f"csv:{table}", "site")
  with pytest.raises(ConfigError, match=r"label_key='spcies': there is no such column.*name them"):
    recipes.load(f"configs/finetune.py:w.npz,{table},label_key=spcies")


def test_the_model_may_have_the_name_of_another_library(tmp_path):
  config = recipes.load(f"configs/train.py:{draw(tmp_path, images=6)},vit_small_patch16_224")
  assert (config.model.name, config.model.depth) == ("ViT-S/16", AUTO)
  config = resolved.with_data(config)
  model = config.model
  assert (model.name, model.depth, model.activation) == ("ViT-S/16", 12, "gelu")
  assert model.positions == "1d"
  assert config.data.image_size == 224
  told = dict(config.origins)
  assert told["model.name"] == "the architecture of vit_small_patch16_224, without its weights"
  assert told["model.activation"] == told["data.image_size"] == "vit_small_patch16_224"


@pytest.mark.parametrize(
  ("images", "side", "model", "size", "batch"),
  [
    (30, 28, "ViT-Ti/4", 28, 4),
    (9000, 65, "ViT-Ti/8", 64, 64),
    (9000, 700, "ViT-Ti/16", 224, 64),
    (400_000, 250, "ViT-Ti/16", 224, 256),
    (2_000_000, 230, "ViT-S/16", 224, 1024),
  ],
)
def test_the_model_suits_the_images(images, side, model, size, batch):
  config = resolved.without_data(own_images.train("digits"), images=images, side=side)
  assert (config.model.name, config.data.image_size) == (model, size)
  assert config.batch_size == batch
  named = resolved.without_data(own_images.train("digits", "ViT-H/14"), images=images, side=side)
  assert named.model.name == "ViT-H/14"
  assert named.data.image_size == size // 14 * 14


def test_images_that_cannot_be_decoded_have_no_size(tmp_path):
  folder = draw(tmp_path, images=3)
  for path in folder.glob("*/*.png"):
    path.write_bytes(path.read_bytes()[:20])
  source = sources.open_source(f"folder:{folder}")
  assert sample.median_side(source, max_pixels=Data().max_pixels) == 224


@pytest.mark.parametrize(
  ("recipe", "message"),
  [
    ("train.py:{}/photo", "and there is no file or folder of that name"),
    ("train.py:{}/a/0.png", "and it is a file of none; give one of these"),
    ("train.py:{},ViT-M/16", "ViT-M/16"),
    ("finetune.py:{}/none.npz,{}", r"none.npz does not exist; give weights"),
    ("train.py:tar:{}/x.tar", "does not name a data source. Tar files .* are named wds:PATTERN"),
    ("train.py:images:{}/a,ViT-S/16", "nearest first: .*folder:DIR"),
    ("train.py:fodler:{}", "nearest first: folder:DIR"),
    ("train.py:http://host/x.csv", "is a URL"),
    ("finetune.py:{}/none.npz,fodler:{}", "nearest first: folder:DIR"),
    ("evaluate.py:{}/none.npz,cvs:list.csv", "A CSV file is named csv:FILE"),
    ("finetune.py:ViT-B/16,{}/photo", "photo' is none of imagenet, cifar100"),
    ("evaluate.py:{}/none.npz,{}/photo", "none.npz' is none of imagenet, real"),
  ],
)
def test_what_is_not_there_is_named(tmp_path, recipe, message):
  draw(tmp_path, images=2)
  with pytest.raises(ConfigError, match=message):
    resolved.with_data(recipes.load(f"configs/{recipe.format(tmp_path, tmp_path)}"))


@pytest.mark.parametrize("recipe", ["vit_b16_jft", "masked_fashion", "resnet_sgd", "vtab", "train"])
def test_a_written_recipe_is_the_same(tmp_path, recipe):
  config = recipes.load(f"configs/{recipe}.py")
  path = tmp_path / "mine.py"
  path.write_text(as_recipe(config, {}, "Mine."))
  assert recipes.load(str(path)) == dataclasses.replace(config, origins=())
