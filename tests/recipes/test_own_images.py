"""A user's own images: what is chosen from them, and that it trains, fine-tunes and evaluates."""

import dataclasses
import json
import re

import cv2
import numpy as np
import pytest

from tests import programs, resolved
from tests.data import tfds_fixture
from tests.data.opened import open_source
from tests.recipes.paper import load
from vit_jax import launch, recipes
from vit_jax.config import AUTO, ConfigError, scales
from vit_jax.data import datasets
from vit_jax.data.sources import SourceError
from vit_jax.devices.hosts import Hosts
from vit_jax.evaluation import catalogue
from vit_jax.extras.probes import parts
from vit_jax.process.console import StopRequest
from vit_jax.process.progress import SILENT
from vit_jax.recipes import loading, own_images

SHORT = ("--config.duration.steps=3", "--config.schedule.warmup.steps=1")


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
def test_one_line_fine_tunes_and_evaluates(tiny_run, tmp_path, capsys):
  """Training and its table are in tests/test_walk.py."""
  photos, tuned = draw(tmp_path / "photos"), tmp_path / "tuned"
  assert run(f"configs/finetune.py:{tiny_run},{photos}", tuned, *SHORT)
  printed = capsys.readouterr().out
  assert re.search(r"duration +3 steps", printed)
  assert re.search(rf"data\.image_size +16 +{tiny_run}", printed)
  assert printed.count("the command line") == 2  # the length and the warm-up
  assert "held_out: top-1" in printed
  others = draw(tmp_path / "others", classes="ba")
  run(f"configs/evaluate.py:{tuned},{others}", tmp_path / "scores", mode="evaluate")
  assert json.loads((tmp_path / "scores/evaluation.json").read_text())["own/top1"] <= 1
  with pytest.raises(ConfigError, match=r"36 images .* in common"):
    run(f"configs/evaluate.py:{tuned},{photos}", tmp_path / "more", mode="evaluate")


def test_folders_called_train_and_test_are_parts(tmp_path):
  for name in ("Train", "test", "val"):
    draw(tmp_path / name, images=8)
  config = own_images.train(str(tmp_path))
  assert (config.data.train.source, config.data.train.split) == (f"folder:{tmp_path}/Train", "")
  assert config.evaluate["held_out"].source == f"folder:{tmp_path}/val"
  scored = own_images.evaluation("weights.npz", str(tmp_path)).evaluate["own"]
  assert scored.source == f"folder:{tmp_path}/test"


@pytest.mark.parametrize(
  ("names", "train", "scored"),
  [
    (("trainval", "test"), ("trainval", ""), ("test", "")),
    (("TrainVal", "Val", "Test"), ("TrainVal", ""), ("Test", "")),
    (("trainval", "val"), ("trainval", "[:90%]"), ("trainval", "[90%:]")),
    (("trainval", "train", "val", "test"), ("train", ""), ("val", "")),
  ],
)
def test_training_images_may_hold_those_of_validation(tmp_path, names, train, scored):
  for name in names:
    draw(tmp_path / name, images=8)
  config = own_images.train(str(tmp_path))
  found = config.data.train, config.evaluate["held_out"]
  assert [(part.source, part.split) for part in found] == [
    (f"folder:{tmp_path}/{name}", split) for name, split in (train, scored)
  ]


def test_a_test_split_without_classes_is_left_out(tmp_path):
  draw(tmp_path / "train", images=8)
  draw(tmp_path / "test", classes="")
  config = own_images.train(str(tmp_path))
  for part, split in ((config.data.train, "[:90%]"), (config.evaluate["held_out"], "[90%:]")):
    assert (part.source, part.split) == (f"folder:{tmp_path}/train", split)
  ((_, words),) = config.origins
  assert words.startswith("only train has folders of classes; a random tenth of each class")
  own = own_images.evaluation("w.npz", str(tmp_path)).evaluate["own"]
  with pytest.raises(SourceError, match=rf"Name one split: folder:{tmp_path}/train\.$"):
    open_source(own.source, own.split)


def test_how_to_hold_nothing_out(tmp_path):
  flags = "--config.data.train.split=", "--config.evaluate.held_out.source="
  page = (programs.ROOT / "docs/fine-tuning.md").read_text(encoding="utf-8")
  assert f"`{' '.join(flags)}`" in page
  config = recipes.resolve(f"configs/train.py:{draw(tmp_path)}", flags)
  assert not config.data.train.split
  assert not catalogue.names(config)


@pytest.mark.parametrize("recipe", ["train.py:{}", "finetune.py:w.npz,{}"])
def test_parts_of_two_sources_are_named(tmp_path, monkeypatch, recipe):
  monkeypatch.chdir(tmp_path)
  mine, others = draw(tmp_path / "mine", images=4), draw(tmp_path / "others", images=4)
  recipe = f"configs/{recipe.format(mine)}"
  train, scored = "--config.data.train", "--config.evaluate.held_out"
  advice = f"give {train}.split= {scored}.split= for all images of both, or {train}.split='[:90%]' "
  for word in (f"{scored}.source=folder:{others}", f"{train}.source=folder:{others}"):
    with pytest.raises(ConfigError, match=re.escape(advice)):
      recipes.resolve(recipe, [word])
    for splits in (["", ""], ["[:90%]", "[90%:]"]):
      words = [word, f"{train}.split={splits[0]}", f"{scored}.split={splits[1]}"]
      config = recipes.resolve(recipe, words)
      assert [config.data.train.split, config.evaluate["held_out"].split] == splits
    with pytest.raises(ConfigError, match=rf"give {scored}.split= for all"):
      recipes.resolve(recipe, [word, f"{train}.split=[:50%]"])
  for both in ("folder:./others", "others"):  # parts of the same images
    words = [f"{train}.source=folder:{others}", f"{scored}.source={both}"]
    assert recipes.resolve(recipe, words).data.train.split == "[:90%]"
  assert recipes.resolve(recipe, [f"{scored}.kind=few_shot"]).data.train.split == "[:90%]"


def test_a_source_without_splits_is_trained_on_as_a_whole():
  config = recipes.load("train:synthetic:10")
  assert (config.data.train.source, config.data.train.split) == ("synthetic:10", "")
  assert not catalogue.names(config)
  assert ("data.train", "all images: synthetic:10 has no splits") in config.origins
  config = recipes.resolve("train:synthetic:10", ["--config.evaluate.held_out.source=synthetic:10"])
  assert catalogue.names(resolved.with_data(config))
  with pytest.raises(ConfigError, match=r"^synthetic:10 has no splits, so there are no test"):
    parts.open_parts("synthetic:10", (), SILENT)


def test_a_class_called_train_is_a_class(tmp_path):
  for name in ("bus", "train", "tram"):
    draw(tmp_path / name, images=4)  # with folders inside
  assert own_images.train(str(tmp_path)).data.train.split == "[:90%]"


def test_data_with_splits_is_scored_on_them():
  config = own_images.train("digits")
  assert (config.data.train.split, config.evaluate["held_out"].split) == ("train", "test")
  data = resolved.with_data(config).data
  assert (data.image_size, data.resampling) == (16, "pillow_bilinear")
  of_weights = own_images.train("digits", replace=lambda x: dataclasses.replace(x, init_from="w"))
  assert of_weights.data.resampling == AUTO


def test_parts_of_which_none_is_for_training_are_not_trained_on_together(tmp_path):
  draw(tmp_path, images=6)
  table = tmp_path / "list.csv"
  rows = [f"a/{i}.png,{'xy'[i % 2]},{'Test Set' if i < 2 else 'val'}" for i in range(6)]
  table.write_text("\n".join(["image,label,split", *rows]))
  refusal = "has the splits Test Set, val, and none of them is called train"
  recipe, words = f"configs/train.py:{table}", ["--config.data.train.split=val"]
  for given in ([], words, [*words, "--config.data.allow_overlap=True"]):
    with pytest.raises(ConfigError, match=re.escape(BOTH_FLAGS)) as caught:
      recipes.resolve(recipe, given)
    assert refusal in str(caught.value)
  with pytest.raises(ConfigError, match=rf"{refusal}\.$"):
    parts.open_parts(str(table), (), SILENT)
  config = recipes.resolve(recipe, [*words, "--config.evaluate.held_out.split=Test Set"])
  assert splits_of(config) == ["val", "Test Set"]
  config = recipes.resolve(recipe, ["--config.data.train.split=[:50%]"])
  assert splits_of(config) == ["[:50%]", "[90%:]"]  # of all rows


def test_parts_of_all_rows_are_trained_on_if_they_are_named(tmp_path):
  """As a table was divided whose column of splits was not known; the page of changes says how."""
  draw(tmp_path, images=6)
  table = tmp_path / "list.csv"
  rows = [f"a/{i}.png,{'xy'[i % 2]},{'train' if i < 4 else 'valid'}" for i in range(6)]
  table.write_text("\n".join(["image,label,data set", *rows]))
  recipe = f"configs/train.py:{table}"
  assert recipes.load(recipe).data.train.split == "train"
  words = "--config.data.train.split=[:90%]", "--config.evaluate.held_out.split=[90%:]"
  config = recipes.resolve(recipe, words)
  assert (config.data.train.split, config.evaluate["held_out"].split) == ("[:90%]", "[90%:]")
  given = re.sub(r"=(\S+)", r"='\1'", " ".join(words))
  assert f"`{given}`" in (programs.ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


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
    assert loading.weights_and_data(f"{run},{data}", named=False) == (str(run), data)
  assert loading.weights_and_data(f"{run},{odd}/none", named=False) == (str(run), f"{odd}/none")
  (evaluated,) = recipes.load(f"configs/evaluate.py:{run},{odd}").evaluate.values()
  assert evaluated.source == f"folder:{odd}"
  assert recipes.load(f"configs/train.py:{odd}").data.train.source == f"folder:{odd}"


def test_paths_may_be_named_like_tasks_and_suites(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  draw(tmp_path / "pets", images=4)
  draw(tmp_path / "real", images=4)
  (tmp_path / "mine").mkdir()
  for recipe in ("finetune:real,pets", "evaluate:real,pets", "finetune:pets,real"):
    weights, data = recipe.partition(":")[2].split(",")
    config = recipes.load(recipe)
    found = [config.data.train.source, *(spec.source for spec in config.evaluate.values())]
    assert (config.init_from, found[-1]) == (weights, f"folder:{data}")
  draw(tmp_path / "digits", images=4)
  assert recipes.load("train:digits").data.train.source == "folder:./digits"
  assert parts.open_parts("digits", (), SILENT).class_names == ("a", "b")
  assert recipes.load("finetune:ViT-B/16,pets").data.train.source.startswith("tfds:")
  for name in ("finetune", "evaluate"):
    with pytest.raises(ConfigError, match='"photoz" does not name a data source, and there is no'):
      recipes.load(f"{name}:mine,photoz")


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
  kinds = tfds_fixture.tfds.features
  features = {"image": kinds.Image(encoding_format="jpeg"), "label": kinds.ClassLabel(names="ab")}
  rng = np.random.default_rng(0)
  examples = [{"image": tfds_fixture.jpeg_of(rng), "label": i % 2} for i in range(40)]
  tfds_fixture.write(tmp_path, "mine", features, {"train": examples})
  config = own_images.train("tfds:mine")
  assert ("data.train", "a random tenth is scored, and not trained on") in config.origins
  probed = parts.open_parts("tfds:mine", (), SILENT)
  assert probed.words == "a random tenth is scored, and not trained on"


@pytest.fixture(scope="module")
def one_and_two(tmp_path_factory):
  """A dataset whose splits have no word for a split."""
  folder = tmp_path_factory.mktemp("tfds")
  kinds = tfds_fixture.tfds.features
  features = {"image": kinds.Image(encoding_format="jpeg"), "label": kinds.ClassLabel(names="ab")}
  image = tfds_fixture.jpeg_of(np.random.default_rng(0))
  examples = [{"image": image, "label": i % 2} for i in range(4)]
  tfds_fixture.write(folder, "mine", features, {"one": examples, "two": examples})
  return folder


BOTH_FLAGS = (
  "and none of them is called train; choose two of them by --config.data.train.split=NAME "
  "--config.evaluate.held_out.split=OTHER, or divide one by --config.data.train.split='NAME[:90%]' "
  "--config.evaluate.held_out.split='NAME[90%:]'."
)


def splits_of(config):
  """Opens all images, none of which may be trained on and scored; returns their splits."""
  opener = datasets.opener_of(config.data, SILENT)
  trained = opener.training(config.data, labelled=True).datasets if config.data.train.source else ()
  scored = [spec.scored() for spec in config.evaluate.values() if spec.given()]
  for dataset in scored:
    datasets.check_leakage(trained, opener.labelled("scored", dataset), allow=False)
  return [named.dataset.split for named in trained] + [dataset.split for dataset in scored]


@pytest.mark.parametrize(
  ("recipe", "words", "splits"),
  [
    ("train.py:{}", ["data.train.split=one", "evaluate.held_out.split=two"], ["one", "two"]),
    (
      "finetune.py:w.npz,{}",
      ["data.train.split=one[:50%]", "evaluate.held_out.split=one[50%:]"],
      ["one[:50%]", "one[50%:]"],
    ),
    ("train.py:{}", ["data.train.split=one", "evaluate.held_out.source="], ["one"]),
    ("evaluate.py:w.npz,{}", ["evaluate.own.split=two"], ["two"]),
    ("train.py:{}", [], f"has the splits one, two, {BOTH_FLAGS}"),
    ("train.py:{}", ["data.train.split=one"], BOTH_FLAGS),
    ("train.py:{}", ["evaluate.held_out.split=two"], BOTH_FLAGS),
    ("finetune.py:w.npz,{}", ["data.train.split=one[:50%]"], BOTH_FLAGS),
    ("evaluate.py:w.npz,{}", [], "has the splits one, two, and none of them is called test or val"),
  ],
)
def test_the_command_line_may_name_the_parts(one_and_two, monkeypatch, recipe, words, splits):
  monkeypatch.setenv("TFDS_DATA_DIR", str(one_and_two))
  recipe = f"configs/{recipe.format('tfds:mine')}"
  words = [f"--config.{word}" for word in words]
  if isinstance(splits, str):
    with pytest.raises(ConfigError, match=re.escape(splits)):
      recipes.resolve(recipe, words)
    return
  assert splits_of(recipes.resolve(recipe, words)) == splits


def test_folders_of_which_none_is_for_training_are_named(tmp_path):
  for name in ("test", "val"):
    draw(tmp_path / name, images=4)
  refusal = rf"called train; give one of them instead: 'folder:{tmp_path}/test', 'folder:.*/val'\."
  for words in ([], [f"--config.data.train.source=folder:{tmp_path}"]):
    with pytest.raises(ConfigError, match=refusal):
      recipes.resolve(f"configs/train.py:{tmp_path}", words)
  with pytest.raises(ConfigError, match=refusal):
    parts.open_parts(str(tmp_path), (), SILENT)


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
  probed = parts.open_parts(f"{table},label_key=the species,image_key=photo", (), SILENT)
  assert (len(probed.labels), probed.class_names) == (10, ("x", "y"))
  with pytest.raises(ConfigError, match=r"has the columns .* DATA,label_key=NAME .* name them\."):
    parts.open_parts(str(table), (), SILENT)
  with pytest.raises(ConfigError, match=r"label_key='spcies': there is no such column.*name them"):
    recipes.load(f"configs/finetune.py:w.npz,{table},label_key=spcies")


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
