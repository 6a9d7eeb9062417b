"""vit-jax visualize: pictures and numbers of every kind, and a sentence where there are none."""

import csv
import dataclasses
import json
import pathlib
import re

import numpy as np
import pytest
from PIL import Image

from tests import modules, resolved
from tests.weights import families
from vit_jax import config, inference, weights
from vit_jax.data.sources import open_source
from vit_jax.data.sources.digits import Digits
from vit_jax.evaluation import results
from vit_jax.evaluation.classification import Classification
from vit_jax.extras.commands import visualize
from vit_jax.models.recognition import settings_of
from vit_jax.weights import Weights
from vit_jax.weights.card import Card

DISTANCE, FEATURES = ([f"{name}.png", f"{name}.svg"] for name in ("distance", "features"))
PATCHES = ["patches/000.png", "patches.png"]
OF_DIGITS = "features --source {}/bit.npz --images digits --split test --count 12 --method pca"
NAMES = ("\u732b", "dog $", "<b>", "", "\x1b")
CARD = Card(image_size=16, resize=20, class_names=NAMES)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  """Weights of several kinds, and photos of several sizes."""
  folder = tmp_path_factory.mktemp("visualize")
  for family in ("vit", "bit", "axial", "none"):
    weights.write(folder / f"{family}.npz", Weights(families.params(family), CARD))
  weights.save(folder / "head.npz", {"head": families.params("vit")["head"]})
  weights.save(folder / "uncarded.npz", families.params("none"))
  weights.save(folder / "uncarded_bit.npz", families.params("bit"))
  (folder / "photos").mkdir()
  rng = np.random.default_rng(0)
  for i, shape in enumerate([(30, 40, 3), (8, 8), (50, 20, 3), (16, 16, 3), (9, 30, 3)]):
    Image.fromarray(rng.integers(0, 256, shape, np.uint8)).save(folder / "photos" / f"{i}.png")
  (folder / "bad").mkdir()
  (folder / "bad" / "x.png").write_bytes(b"no image")
  (folder / "run").mkdir()
  return folder


def run(folder, words, capsys):
  """What the tool prints as JSON."""
  words = words.replace("{}", str(folder)).split()
  visualize.main([*words, "--output", str(folder / "out"), "--format", "json"])
  return json.loads(capsys.readouterr().out)


def refusal(folder, words, capsys):
  with pytest.raises(SystemExit) as left:
    run(folder, words, capsys)
  said = capsys.readouterr().err
  assert said.count("\n") == 1
  return left.value.code, said


@pytest.mark.parametrize(
  ("words", "pictures", "numbers"),
  [
    ("filters --source {}/vit.npz", ["filters.png"], ["filters.npz"]),
    ("positions --source {}/vit.npz --image-size 24", ["positions.png"], ["positions.npz"]),
    ("distance --source {}/vit.npz --images {}/photos", DISTANCE, ["distance.csv"]),
    ("distance --source {}/axial.npz --images {}/photos/0.png", ["distance.png"], []),
    ("attention --source {}/vit.npz --images {}/photos/0.png --raw 1 0", ["attention.png"], []),
    ("heads --source {}/vit.npz --images {}/photos", ["heads.png"], ["heads.npz"]),
    ("patches --source {}/vit.npz --images {}/photos/0.png", PATCHES, ["patches.npz"]),
    (OF_DIGITS, [*FEATURES, "neighbours.png"], ["features.csv", "features.npz"]),
  ],
)
def test_every_kind(folder, words, pictures, numbers, capsys):
  found = run(folder, words, capsys)
  for kind, names in (("pictures", pictures), ("numbers", numbers)):
    assert {str(folder / "out" / name) for name in names} <= set(found[kind])
    for path in map(pathlib.Path, found[kind]):
      assert path.stat().st_size > 0
      if path.suffix == ".png":
        with Image.open(path) as image:
          image.load()
      if path.suffix == ".npz":
        with np.load(path) as arrays:
          assert all(np.isfinite(x).all() for x in arrays.values())
  assert found["text"].endswith(".")
  assert "\n" not in found["text"]


def test_numbers_are_those_of_the_pictures(folder, capsys):
  """Every image has its map, at its own aspect in the picture, and its classes."""
  left = folder / "out" / "attention"
  left.mkdir(parents=True, exist_ok=True)
  for name in ("007.png", "mine.png"):  # an earlier command had more images
    (left / name).write_bytes(b"")
  found = run(folder, "attention --source {}/vit.npz --images {}/photos", capsys)
  assert [pathlib.Path(path).name for path in found["pictures"]] == [
    *(f"{i:03d}.png" for i in range(5)),
    "attention.png",
  ]
  with np.load(folder / "out" / "attention.npz") as numbers:
    maps, logits = numbers["maps"], numbers["logits"]
  assert maps.shape == (5, 4, 4)
  rows = list(csv.DictReader((folder / "out" / "attention.csv").read_text().splitlines()))
  assert [row["name"][-5:] for row in rows] == [f"{i}.png" for i in range(5)]
  for row, one in zip(rows, logits, strict=True):
    assert row["class 1"] == NAMES[one.argmax()]
    assert float(row["probability 1"]) >= float(row["probability 2"])
  with Image.open(folder / "out" / "attention" / "002.png") as image:
    assert image.size == (2 * 80 + 4, 200)  # 20 x 50 pixels, four times, twice
  assert {path.name for path in left.iterdir()} == {*(f"{i:03d}.png" for i in range(5)), "mine.png"}


@pytest.mark.parametrize(
  ("pool", "whose"),
  [
    ("class_token", "the class token"),
    ("distilled", "class token and distillation token (mean)"),
    ("gap_beside_token", "all patches (mean)"),
  ],
)
def test_heads_say_whose_attention_they_are(folder, pool, whose, capsys):
  module = families.module("vit", pool=pool)
  params = modules.parameters(module, families.images(), train=False)
  card = dataclasses.replace(CARD, model=settings_of(module))
  weights.write(folder / f"{pool}.npz", Weights(params, card))
  found = run(folder, f"heads --source {{}}/{pool}.npz --images {{}}/photos --count 1", capsys)
  assert found["text"].startswith(f"Attention of {whose} in the last layer, 1, by head")


def test_what_the_colours_are_is_said(folder, capsys):
  found = run(folder, "patches --source {}/vit.npz --images {}/photos", capsys)
  assert "first three principal components, each from its 1% to its 99% quantile" in found["text"]
  assert len(found["pictures"]) == 6
  with np.load(folder / "out" / "patches.npz") as numbers:
    assert numbers["colours"].shape == (5, 4, 4, 3)
    np.testing.assert_allclose(found["summary"]["variance"], numbers["variance"])


STEPS = "--config.data.augment=[{'kind':'rand_augment','layers':1},{'kind':'three_augment'}]"
AUGMENT = "augment --config configs/vit_digits.py --images {}/photos --count 3"


def test_every_operation_of_an_augmentation_has_a_row(folder, capsys):
  found = run(folder, f"{AUGMENT} {STEPS}", capsys)
  assert found["summary"] == {"images": 3, "operations": {"rand_augment": 16, "three_augment": 3}}
  assert found["text"].endswith("3 of 5 images of 16 px: 16 of rand_augment, 3 of three_augment.")
  rows = list(csv.DictReader((folder / "out" / "augment.csv").read_text().splitlines()))
  assert len(rows) == 3 * (1 + 16 + 3)
  drawn = {row["operation"]: row["drawn"] for row in rows}
  assert drawn["rand_augment: posterize"] == "bits=4"
  assert drawn["rand_augment: rotate"] in ("degrees=30", "degrees=-30")
  assert drawn["as it is"] == drawn["three_augment: grey"] == ""


def test_features_are_those_of_the_model(folder, capsys):
  """Whose card cuts a centre out of each image."""
  run(folder, "features --source {}/vit.npz --images {}/photos --method pca", capsys)
  expected = inference.load(folder / "vit.npz").features(sorted((folder / "photos").iterdir()))
  with np.load(folder / "out" / "features.npz") as numbers:
    np.testing.assert_allclose(numbers["features"], expected, atol=1e-5)


def test_images_without_a_label_are_no_class(folder, capsys, monkeypatch):
  monkeypatch.setattr(Digits, "labels", lambda self, index: (0,) if index < 180 else ())
  found = run(folder, OF_DIGITS, capsys)
  assert found["summary"]["same_class"] == 1
  assert re.search(r"same class \(\d+ pairs in which both images have a label\)\.$", found["text"])
  monkeypatch.setattr(Digits, "labels", lambda self, index: ())
  assert run(folder, OF_DIGITS, capsys)["summary"]["same_class"] is None


def test_one_patch_is_not_compared(folder, capsys):
  said = run(folder, "positions --source {}/vit.npz --image-size 4", capsys)["text"]
  assert said == "Position embeddings of 4 px images. There is one patch alone."


def test_what_is_of_a_moving_average_says_so(folder, capsys):
  averaged = dataclasses.replace(CARD, average=True)
  weights.write(folder / "average.npz", Weights(families.params("vit"), averaged))
  for name in ("vit", "average"):
    found = run(folder, f"filters --source {{}}/{name}.npz", capsys)
    assert ("moving average of the parameters" in found["text"]) == (name == "average")
    assert found["summary"].get("average", False) == (name == "average")


def test_mistakes_of_a_run(folder, capsys, monkeypatch):
  source = open_source("digits", split="test")
  names = tuple(map(str, range(10)))
  labels = np.array([source.labels(i)[0] for i in range(4)])
  predictions = (labels + np.array([0, 1, 1, 0])) % 10
  known = results.Details(names, labels, predictions, np.array([1, 0.5, 0.75, 1]), source.name)
  results.write_predictions(folder / "run" / "evaluation" / "1" / "test", known)
  sets = {"test": Classification("digits", "test")}
  recorded = resolved.config(evaluate=sets)
  (folder / "run" / "config.json").write_text(json.dumps(config.to_dict(recorded)))
  found = run(folder, "mistakes --source {}/run", capsys)
  assert found["summary"] == {"test": {"mistakes": 2, "images": 4}}
  monkeypatch.setenv("HOME", str(folder))
  assert run(folder, "mistakes --source ~/run", capsys) == found
  assert source.name(2) in found["text"]
  assert [pathlib.Path(path).name for path in found["pictures"]] == ["mistakes_test.png"]
  status, said = refusal(folder, "mistakes --source {}/run --images {}/photos", capsys)
  assert status == 2
  assert "is not among the 5 images" in said


@pytest.mark.parametrize(
  ("words", "message"),
  [
    ("filters --source {}/head.npz", "do not belong to a known model"),
    ("filters --source {}/bit.npz", "of a ResNet"),
    ("positions --source {}/none.npz", "no position embeddings"),
    ("positions --source {}/vit.npz --image-size 260", "65 x 65 patches"),
    ("positions --source {}/uncarded_bit.npz", "of a ResNet"),
    ("distance --source {}/uncarded.npz --images {}/photos", "give image_size (--image-size)"),
    ("distance --source {}/none.npz --image-size 1024 --images {}/photos", "choose smaller"),
    ("distance --source {}/vit.npz --images {}/bad/x.png", "x.png cannot be shown"),
    ("attention --source {}/axial.npz --images {}/photos", "an axial model"),
    ("attention --source {}/vit.npz --images {}/photos --raw 2 0", "layers are 0 to 1"),
    ("heads --source {}/axial.npz --images {}/photos", "an axial model"),
    ("heads --source {}/bit.npz --images {}/photos", "of a ResNet"),
    ("features --source {}/vit.npz --images {}/photos/0.png", "at least 4 images; there are 1"),
    ("mistakes --source {}/vit.npz", "vit.npz is not the workdir of a run"),
    (AUGMENT, "config.data.augment is empty"),
    (f"{AUGMENT} --config.data.augment=[{{'kind':'rotate'}}]", "kind='rotate' is not a choice"),
    (f"filters --source {{}}/vit.npz {STEPS}", "which only augment takes"),
  ],
)
def test_a_sentence_where_nothing_can_be_shown(folder, words, message, capsys):
  status, said = refusal(folder, words, capsys)
  assert status == 2
  assert message in said


def test_weights_without_a_head_or_in_half_precision(folder, capsys):
  params = {name: part for name, part in families.params("vit").items() if name != "head"}
  half = {"embedding": {name: np.float16(x) for name, x in params["embedding"].items()}}
  headless = dataclasses.replace(CARD, class_names=())
  weights.write(folder / "half.npz", Weights(params | half, headless))
  found = run(folder, "attention --source {}/half.npz --images {}/photos --count 2", capsys)
  assert found["summary"]["images"] == 2
  assert (folder / "out" / "attention.csv").read_text().startswith("number,name\n")


def test_a_projection_is_no_head_of_classes(folder, capsys):
  card = Card(image_size=16, projection=True)
  weights.write(folder / "clip.npz", Weights(families.params("vit"), card))
  run(folder, "attention --source {}/clip.npz --images {}/photos --count 2", capsys)
  assert (folder / "out" / "attention.csv").read_text().startswith("number,name\n")
