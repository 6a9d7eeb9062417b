"""vit-jax probe, vit-jax search and vit-jax predict --features on a small model and made images."""

import errno
import json
import re

import numpy as np
import pytest
from PIL import Image

from tests.data.opened import open_source
from tests.extras.probes import made
from vit_jax.config import ConfigError, Dataset
from vit_jax.data.datasets import NamedDataset
from vit_jax.extras.commands import predict, probe, search
from vit_jax.extras.inspection import gallery
from vit_jax.extras.probes import cache, corrupted, corruptions, extraction, logistic, results
from vit_jax.extras.probes.parts import Parts, with_training
from vit_jax.extras.probes.probe import Outcome
from vit_jax.inference import load
from vit_jax.process.progress import SILENT


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  """Weights, labelled photos, and features of them in a cache."""
  folder = tmp_path_factory.mktemp("probe")
  made.vit(folder / "w.npz")
  made.photos(folder / "photos")
  return folder


def run(tool, folder, words, capsys, cache="cache"):
  """What a tool prints as JSON, and on stderr."""
  words = words.replace("{}", str(folder)).split()
  tool.main([*words, "--cache", str(folder / cache), "--format", "json"])
  out = capsys.readouterr()
  return json.loads(out.out), out.err


def refusal(tool, folder, words, capsys):
  with pytest.raises(SystemExit) as left:
    run(tool, folder, words, capsys)
  said = capsys.readouterr().err
  assert "Traceback" not in said
  return left.value.code, said


def test_each_pair_of_weights_and_images_has_a_folder():
  weights = ("w.npz", "a/w.npz", "b/w.npz", "/a/w.npz")
  images = ("photos", "photos/", "x/photos", "y/photos", "/")
  folders = {probe.default_folder(one, other) for one in weights for other in images}
  assert len(folders) == len(weights) * (len(images) - 1)
  assert str(probe.default_folder("w.npz", "photos/")) == "probes/w.npz-photos"


WORDS = "{}/w.npz {}/photos --seeds 2 --steps 20 --output {}/out --batch-size 8"


def test_all_probes(folder, capsys, monkeypatch):
  few = {name: corruptions.CORRUPTIONS[name] for name in ("contrast", "pixelate")}
  monkeypatch.setattr(corrupted, "CORRUPTIONS", few)
  monkeypatch.setattr(corrupted, "SEVERITIES", (1, 5))
  monkeypatch.setattr(logistic, "STRENGTHS", (0.01, 1.0))
  probes = "--probes knn logistic linear cross_attention few_shot"
  found, said = run(probe, folder, f"{WORDS} {probes} --corruptions", capsys)
  by_name = {each["name"]: each for each in found["probes"]}
  names = ["10-nn", "20-nn", "logistic", "linear", "cross_attention", "1-shot", "5-shot", "10-shot"]
  assert list(by_name) == names
  assert "a random tenth of each class is scored" in said
  assert (found["training_images"], found["test_images"], found["classes"]) == (33, 3, 3)
  for name, each in by_name.items():
    assert each["mean"]["accuracy"] > 0.6, name
    assert len(each["seeds"]) == (1 if name.endswith("nn") else 2)
    assert (each["deviation"]["accuracy"] is None) == name.endswith("nn")
    assert ("nll" in each["mean"]) == (name in ("logistic", "linear", "cross_attention"))
  assert [list(each) for each in found["corruptions"].values()] == [["1", "5"]] * 2
  assert list(found["corruptions"]["contrast"]["1"]) == names
  assert any("frost" in words for words in found["left_out"])
  assert any("no k = 100, 200" in words for words in found["left_out"])
  assert found["compare_with"] == {
    "Fine-tuning": f"vit-jax finetune {folder}/w.npz {folder}/photos",
    "From scratch": f"vit-jax train {folder}/photos",
  }
  assert "overlap" not in found
  assert json.loads((folder / "out" / "probe.json").read_text()) == found
  assert "<td" in (folder / "out" / "probe.html").read_text()


def test_results_that_cannot_be_written_are_printed(folder, capsys, monkeypatch):
  def full(path, *_):
    raise OSError(errno.ENOSPC, "No space left on device", str(path))

  monkeypatch.setattr(probe, "probed", lambda args: None)
  monkeypatch.setattr(results, "in_words", lambda result: "the table")
  monkeypatch.setattr(results, "write", full)
  with pytest.raises(SystemExit) as left:
    probe.main([f"{folder}/w.npz", f"{folder}/photos", f"--output={folder}/full"])
  out = capsys.readouterr()
  assert (left.value.code, out.out) == (1, "the table\n")
  assert "No space left on device" in out.err


def test_the_table_of_corruptions_says_what_it_is():
  corrupted = {"fog": {1: {"5-nn": 0.5}, 5: {"5-nn": 0.25}}}
  outcomes = [Outcome("5-nn", [{"accuracy": 0.5}], [""])]
  words = results.in_words(results.Result({}, outcomes, 1.0, [], {}, corrupted)).splitlines()
  (table,) = results.corruptions(corrupted).tables
  assert words[words.index(f"{table.caption}:") + 1].split() == ["corruption", "5-nn"]


def test_images_that_pre_training_saw_without_labels(tmp_path, capsys):
  made.photos(tmp_path / "photos")
  seen = Dataset(f"folder:{tmp_path / 'photos'}", label_key="")
  made.vit(tmp_path / "w.npz", trained_on=((seen, ""),))
  words = f"{WORDS} --probes knn"
  code, said = refusal(probe, tmp_path, words, capsys)
  assert (code, "or allow it with --allow-overlap." in said) == (2, True)
  found, said = run(probe, tmp_path, f"{words} --allow-overlap", capsys)
  assert "have 3 images (such as" in found["overlap"]
  assert found["overlap"] in said
  assert found["compare_with"]["Fine-tuning"].endswith(" --config.data.allow_overlap=True")
  assert not found["compare_with"]["From scratch"].endswith("=True")


def test_segmentation_of_made_masks(folder, capsys, monkeypatch):
  rng = np.random.default_rng(0)
  for name in ("images", "masks"):
    (folder / "rooms" / name).mkdir(parents=True)
  for i in range(20):
    mask = np.uint8(np.kron(rng.integers(0, 2, (4, 4)), np.ones((5, 6))))
    mask[0] = 255
    pixels = np.array([(220, 60, 60), (50, 60, 220)])[np.minimum(mask, 1)]
    pixels = np.uint8(np.clip(pixels + rng.integers(-20, 21, pixels.shape), 0, 255))
    Image.fromarray(pixels).save(folder / "rooms" / "images" / f"{i}.png")
    Image.fromarray(mask).save(folder / "rooms" / "masks" / f"{i}.png")
  words = "{}/w.npz rooms --probes segmentation --steps 200 --seeds 1 --output {}/rooms_out"
  monkeypatch.chdir(folder)
  found, _ = run(probe, folder, words, capsys)
  (one,) = found["probes"]
  assert list(one["mean"]) == ["accuracy", "miou"]
  assert one["mean"]["miou"] > 0.6
  assert (found["classes"], found["training_images"], found["test_images"]) == (2, 18, 2)
  assert "mIoU" in (folder / "rooms_out" / "probe.html").read_text()


def test_the_cache_is_read_and_its_damage_is_told(folder, capsys):
  words = f"{WORDS} --probes knn"
  first, _ = run(probe, folder, words, capsys, "other")
  paths = list((folder / "other").iterdir())
  assert len(paths) == 2
  for said_of_each in ("read from", "because it is damaged", "read from"):
    again, said = run(probe, folder, words, capsys, "other")
    assert said.count(said_of_each) == 2
    assert again["probes"] == first["probes"]
    if said_of_each == "read from":
      for path in paths:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)


def test_features_that_cannot_be_kept_are_used(folder, capsys, monkeypatch):
  def full(path, *_):
    raise OSError(errno.ENOSPC, "No space left on device", str(path))

  monkeypatch.setattr(cache, "write", full)
  words = "{}/w.npz {}/photos {}/photos/blue/0.png --count 2 --output {}/full.html"
  found, said = run(search, folder, words, capsys, "full")
  assert len(found[0]["nearest"]) == 2
  assert re.search("not kept, because .*full/.* cannot be written: .*No space left", said)


def test_changed_images_are_computed_again(tmp_path, capsys):
  made.vit(tmp_path / "w.npz")
  made.photos(tmp_path / "photos", images=3)
  words = "{}/w.npz {}/photos {}/photos/blue/0.png --count 2 --output {}/s.html"
  run(search, tmp_path, words, capsys)
  Image.fromarray(np.zeros((9, 9, 3), np.uint8)).save(tmp_path / "photos" / "blue" / "1.png")
  found, said = run(search, tmp_path, words, capsys)
  assert "the images have changed" in said
  assert found[0]["nearest"][0]["similarity"] == pytest.approx(1, abs=1e-5)


def test_images_that_cannot_be_read_are_left_out_and_named(tmp_path, capsys):
  made.vit(tmp_path / "w.npz")
  made.photos(tmp_path / "photos", images=3)
  model = load(tmp_path / "w.npz")
  source = open_source(f"folder:{tmp_path}/photos")
  said = []
  kept = cache.Cache(model, tmp_path / "cache", 4, SILENT, said.append)
  named = NamedDataset("The images", Dataset(f"folder:{tmp_path}/photos"), source)
  whole = kept.features(named, "all", patches=False)
  broken = tmp_path / "photos/blue/1.png"
  content = broken.read_bytes()
  broken.write_bytes(content[:40])
  row = [source.name(i) for i in range(9)].index(str(broken))
  for computed in (True, False):
    said.clear()
    found = kept.features(named, "all", patches=False)
    assert any("all: read from" in each for each in said) != computed
    assert re.match("all: 1 of 9 images cannot be read, and are left out: .*/1.png: ", said[-1])
    rows = extraction.readable(found)
    assert [*rows] == [i for i in range(9) if i != row]
    np.testing.assert_allclose(found["pre_logits"][rows], whole["pre_logits"][rows], atol=1e-5)
  with pytest.raises(ValueError, match=r"all: 1 of 9 .*/1.png: .*; repair them or leave them out"):
    kept.features(named, "all", patches=False, need_all=True)
  parts = Parts(named, named, np.repeat(np.arange(3), 3), None, "", "")
  some = with_training(parts, rows)
  assert [some.train.source.name(i) for i in range(8)] == [source.name(i) for i in rows]
  assert [*np.bincount(some.labels)] == [3 - (i == row // 3) for i in range(3)]
  with pytest.raises(ConfigError, match="have no image of 'blue'"):
    with_training(parts, np.flatnonzero(parts.labels != row // 3))
  words = "{}/w.npz {}/photos {}/photos/blue/0.png --output {}/s.html"
  found, _ = run(search, tmp_path, words, capsys)
  names = {each["image"] for each in found[0]["nearest"]}
  assert names == {source.name(i) for i in rows}
  broken.write_bytes(content)
  assert len(extraction.readable(kept.features(named, "all", patches=False))) == 9


def test_search_against_numpy(folder, capsys):
  query = f"{folder}/photos/blue/3.png"
  found, _ = run(search, folder, f"{{}}/w.npz {{}}/photos {query} --output {{}}/s.html", capsys)
  model = load(folder / "w.npz")
  files = sorted((folder / "photos").glob("*/*.png"))
  features = model.features(files).astype(np.float64)
  features /= np.linalg.norm(features, axis=1, keepdims=True)
  cosines = dict(
    zip(map(str, files), features @ features[files.index(folder / query)], strict=True)
  )
  (one,) = found
  assert one["query"] == query
  assert len(one["nearest"]) == 12
  assert one["nearest"][0]["image"] == query
  values = [each["similarity"] for each in one["nearest"]]
  assert values == pytest.approx(sorted(cosines.values(), reverse=True)[:12], abs=1e-5)
  for each in one["nearest"]:
    assert each["similarity"] == pytest.approx(cosines[each["image"]], abs=1e-5)
  page = (folder / "s.html").read_text()
  assert page.count("data:image/jpeg") == 13
  assert "<red>" not in page
  assert "http" not in page.replace('http-equiv="Content-Security-Policy"', "")


def test_a_source_that_has_splits_can_be_searched(folder, capsys):
  words = "{}/w.npz digits {}/photos/blue/3.png --split test --count 3 --output {}/s.html"
  (one,), _ = run(search, folder, words, capsys)
  assert len(one["nearest"]) == 3
  assert "digits test (360 images)" in (folder / "s.html").read_text()


def test_a_part_is_that_of_training(folder, capsys):
  words = "{}/w.npz {}/photos {}/photos/blue/3.png --split [90%:] --count 100 --output {}/p.html"
  (one,), _ = run(search, folder, words, capsys)
  held_out = open_source(f"folder:{folder}/photos", "[90%:]")
  names = {held_out.name(i) for i in range(len(held_out))}
  assert {each["image"] for each in one["nearest"]} == names


def test_columns_are_named_behind_the_images(folder, capsys):
  rows = (f"here,photos/blue/{i}.png,{'xy'[i % 2]},\n" for i in range(2))
  (folder / "list.csv").write_text("site,photo,species,\n" + "".join(rows))
  table = f"{folder}/list.csv,image_key=photo"
  probe.check_images(table)
  words = f"{{}}/w.npz {table} {{}}/photos/blue/0.png --count 1 --output {{}}/c.html"
  found, _ = run(search, folder, words, capsys)
  assert "photos/blue/0.png" in json.dumps(found)
  shown = gallery.gallery([f"{table},label_key=species"], "", 2, labelled=True)
  assert shown.labels == ["x", "y"]


def test_features_of_a_folder_as_a_file(folder, capsys, tmp_path):
  words = f"--source {folder}/w.npz --images {folder}/photos --features --batch-size 7 --output"
  predict.main([*words.split(), str(tmp_path / "f.npz"), "--layers", "2", "--patches"])
  assert "Features of 36 images, (2, 16, 32) each" in capsys.readouterr().out
  with np.load(tmp_path / "f.npz") as stored:
    files = stored["names"].tolist()
    features = stored["features"]
    assert (int(stored["layers"]), bool(stored["patches"])) == (2, True)
    assert "representation" not in stored
  expected = load(folder / "w.npz").features(files, layers=2, patches=True)
  np.testing.assert_allclose(features, expected, atol=1e-5)
  (tmp_path / "bad.png").write_bytes(b"no")
  with pytest.raises(SystemExit) as left:
    predict.main([*words.split(), str(tmp_path / "f.npz"), "--images", str(tmp_path / "bad.png")])
  assert left.value.code == 1
  assert "1 of 37 images could not be used" in capsys.readouterr().err
  with np.load(tmp_path / "f.npz") as stored:
    assert str(stored["representation"]) == "pre_logits"


@pytest.mark.parametrize(
  ("tool", "words", "message"),
  [
    (probe, "{}/w.npz {}/photos --probes segmentation", "neither the folders images and masks"),
    (probe, "{}/w.npz {}/photos --probes segmentation knn", "give it alone"),
    (probe, "{}/w.npz {}/none", "none"),
    (probe, "{}/none.npz {}/photos", "none.npz does not exist"),
    (probe, "{}/w.npz {}/photos/blue", "has no folders inside"),
    (search, "{}/w.npz {}/photos {}/none.jpg", "none.jpg' is no file"),
    (search, "{}/w.npz {}/none {}/photos/blue/0.png", "none"),
    (search, "{}/w.npz {}/photos {}/w.npz", "w.npz cannot be read"),
  ],
)
def test_refusals(folder, tool, words, message, capsys):
  output = f" --output {folder}/refused/{tool.__name__}"
  code, said = refusal(tool, folder, words + output, capsys)
  assert code == 2
  assert message in said.splitlines()[-1]


@pytest.mark.parametrize(
  ("words", "message"),
  [
    ("--features --output x.csv", "is written to --output=NAME.npz"),
    ("--features", "is written to"),
    ("--layers 2", "go with --features"),
    ("--features --layers 3 --output {}/f.npz", "the model has 2 blocks"),
  ],
)
def test_features_that_cannot_be_written(folder, words, message, capsys):
  words = f"--source {{}}/w.npz --images {{}}/photos {words}".replace("{}", str(folder))
  with pytest.raises(SystemExit) as left:
    predict.main(words.split())
  assert left.value.code == 2
  assert message in capsys.readouterr().err
