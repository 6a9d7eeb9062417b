"""vit-jax predict and vit_jax.inference.predict: classes of images in files."""

import csv
import json
import os
import re

import jax
import numpy as np
import pytest
from PIL import Image, ImageSequence

import vit_jax
from tests.data.test_image_files import soon
from tests.weights import families
from vit_jax import weights
from vit_jax.data.patterns import find_images
from vit_jax.extras.commands import predict as tool
from vit_jax.inference import predict as predictions
from vit_jax.inference.model import of_weights
from vit_jax.inference.predict import predict
from vit_jax.weights import Weights
from vit_jax.weights.card import Card

NAMES = tuple("abcde")


@pytest.fixture
def images(tmp_path):
  """Seven images of the model's size, one of them broken, and a file that is not an image."""
  folder = tmp_path / "images"
  (folder / "inner").mkdir(parents=True)
  rng = np.random.default_rng(0)
  for i in range(6):
    pixels = rng.integers(0, 256, (16, 16, 3), np.uint8)
    Image.fromarray(pixels).save(folder / ("inner" if i % 2 else ".") / f"{i}.png")
  (folder / "broken.jpg").write_bytes(b"\xff\xd8nothing")
  (folder / "notes.txt").write_text("not an image")
  return folder


def source(family="vit", **card):
  card = Card(**(dict(image_size=16, class_names=NAMES) | card))
  return Weights(families.params(family), card)


def run(read, paths, **options):
  model = of_weights(read).at_size(options.pop("image_size", 0))
  return list(predict(model, paths, **(dict(top=2, batch_size=4) | options)))


def found(images, *patterns):
  return [path.name for path in find_images([pattern.format(images) for pattern in patterns])]


FIRST, INNER = ["0.png", "2.png", "4.png"], ["1.png", "3.png", "5.png"]


@pytest.mark.parametrize(
  ("patterns", "names"),
  [
    (["{}"], [*FIRST, "broken.jpg", *INNER]),
    (["{}/0.png"], ["0.png"]),
    (["{}/*/*.png"], INNER),
    (["{}/**/3.png"], ["3.png"]),
    (["{}/inn*"], INNER),
    (["{}/4.png", "{}/[24].png", "{}/inner"], ["4.png", "2.png", *INNER]),  # each file once
    (["{}/0.png", "0.png", "inner/../0.png", "./2.png"], ["0.png", "2.png"]),
    (["~/0.png", "~/inner", "~/[2]*"], ["0.png", *INNER, "2.png"]),
  ],
)
def test_images_are_found(images, monkeypatch, patterns, names):
  monkeypatch.chdir(images)
  monkeypatch.setenv("HOME", str(images))
  assert found(images, *patterns) == names


def test_files_that_are_no_images_are_named(images, caplog):
  found(images, "{}")
  (message,) = [record.getMessage() for record in caplog.records]
  assert message == f"Left out of {str(images)!r}: 1 with the suffix '.txt' ('notes.txt')."


@pytest.mark.parametrize(
  ("pattern", "message"),
  [
    ("{}/no.png", "no.png' does not exist"),
    ("{}/*.webp", "webp' matches no file"),
    ("{}/emp*", "emp.' matches no file"),
    ("{}/empty", "empty' holds no .jpg, "),
    ("", "'' does not exist"),
  ],
)
def test_nothing_is_found(images, pattern, message):
  (images / "empty").mkdir()
  with pytest.raises(ValueError, match=message):
    found(images, "{}/0.png", pattern)


def test_a_name_with_brackets_is_a_name(images):
  (images / "0.png").rename(images / "[0].png")
  assert found(images, "{}/[0].png") == ["[0].png"]


def test_a_fifo_is_told_and_holds_nobody_up(images):
  os.mkfifo(images / "pipe.png")
  with soon():
    named, good = run(source(), find_images([str(images / "pipe.png"), str(images / "0.png")]))
  assert "It is a FIFO, not a file" in named.error
  assert good.classes


@pytest.mark.parametrize(("loss", "batch_size"), [("softmax", 4), ("sigmoid", 100)])
def test_against_the_model_itself(images, loss, batch_size):
  paths = [path for path in find_images([str(images)]) if path.suffix == ".png"]
  got = run(source(loss=loss), paths, batch_size=batch_size, top=3)
  assert [p.name for p in got] == [str(path) for path in paths]
  for path, prediction in zip(paths, got, strict=True):
    with Image.open(path) as image:
      pixels = np.asarray(image, np.float32)[None] / 127.5 - 1
    params = families.params("vit")
    logits = np.float64(families.module("vit").apply({"params": params}, pixels, train=False)[0][0])
    expected = 1 / (1 + np.exp(-logits))
    if loss == "softmax":
      expected = np.exp(logits) / np.exp(logits).sum()
    values = dict(prediction.classes)
    assert len(values) == 3
    assert list(values.values()) == sorted(values.values(), reverse=True)
    for name, value in values.items():
      assert value == pytest.approx(expected[NAMES.index(name)], abs=1e-5)


def test_unreadable_images_are_told_and_hold_nobody_up(images):
  got = run(source(), find_images([str(images)]), batch_size=2)
  assert [bool(p.error) for p in got] == [False, False, False, True, False, False, False]
  alone = run(source(), [got[2].name])
  assert dict(alone[0].classes) == pytest.approx(dict(got[2].classes), abs=1e-6)


def test_a_name_with_a_tilde_is_a_name(images, monkeypatch):
  monkeypatch.chdir(images)
  (images / "0.png").rename("~none.png")
  (done,) = run(source(), find_images(["~none.png"]))
  assert (done.name, done.error) == ("~none.png", "")
  assert run(source(), ["~none.png"]) == [done]


def test_weights_without_a_head_are_refused(images, tmp_path, capsys):
  params = families.params("vit")
  del params["head"]
  weights.write(tmp_path / "bare.npz", Weights(params, Card(image_size=16)))
  with pytest.raises(SystemExit, match="2"):
    tool.main(["--source", str(tmp_path / "bare.npz"), "--images", str(images)])
  said = capsys.readouterr().err
  assert "predict: these weights have no head, so they cannot name the classes" in said


def test_the_limit_of_pixels_can_be_changed(images, tmp_path, capsys):
  weights.write(tmp_path / "w.npz", source())
  arguments = ["--source", str(tmp_path / "w.npz"), "--images", str(images / "0.png")]
  with pytest.raises(SystemExit) as left:
    tool.main([*arguments, "--max-pixels=255"])
  assert left.value.code == 1
  said = capsys.readouterr().err
  assert "16 x 16 pixels are more than the 255 that are allowed; raise the limit" in said
  tool.main([*arguments, "--max-pixels=256"])
  assert str(images / "0.png") in capsys.readouterr().out


def test_another_image_size_keeps_the_share_that_is_cut_out(images):
  path = images / "0.png"
  scaled = run(source(resize=20), [path], image_size=32)
  assert scaled == run(source(resize=40, image_size=32), [path])
  assert scaled != run(source(resize=0), [path], image_size=32)


def test_classes_without_names_have_their_numbers(images):
  read = Weights(families.params("bit"), None)
  (prediction,) = run(read, [images / "0.png"], image_size=32)
  assert prediction.classes[0][0].startswith("class ")


def test_images_in_memory_are_those_of_their_files(images, tmp_path):
  weights.write(tmp_path / "w.npz", source())
  model = vit_jax.load(tmp_path / "w.npz")
  path = images / "0.png"
  pixels = np.asarray(Image.open(path))
  (expected,) = model.predict(path)
  assert expected.name == str(path)
  assert {name for name, _ in expected.classes} == {*NAMES}
  data = path.read_bytes()
  paths = np.array([str(path)] * 2), np.array([path], object)
  arrays = pixels, pixels[None], jax.numpy.asarray(pixels), [jax.numpy.asarray(pixels)]
  for same in ([path], str(path), Image.open(path), data, [pixels, data], *paths, *arrays):
    got = model.predict(same)
    assert dict(got[-1].classes) == pytest.approx(dict(expected.classes), abs=1e-6)
    np.testing.assert_allclose(model.features(same)[-1], model.features(path)[0], atol=1e-5)
  grey = model.predict([Image.open(path).convert("L"), np.asarray(Image.open(path).convert("L"))])
  assert grey[0].classes == grey[1].classes
  assert [p.name for p in grey] == ["image 1", "image 2"]


def test_frames_of_a_file_and_an_image_twice_are_read_one_after_the_other(tmp_path):
  frames = [Image.new("RGB", (16, 16), (80 * i, 255 - 80 * i, 0)) for i in range(3)]
  frames[0].save(tmp_path / "a.png", save_all=True, append_images=frames[1:])
  model = of_weights(source()).at_size()
  expected = model.features([np.asarray(frame) for frame in frames])
  with Image.open(tmp_path / "a.png") as animation:
    found = model.features(ImageSequence.Iterator(animation), batch_size=2)
    names = [p.name for p in model.predict(iter([animation] * 3))]
  assert names == ["image 1", "image 2", "image 3"]
  np.testing.assert_allclose(found, expected, atol=1e-5)
  assert np.abs(expected[0] - expected[1]).max() > 1e-3
  with Image.open(tmp_path / "a.png") as opened:
    np.testing.assert_allclose(model.features([opened] * 9), expected[[0] * 9], atol=1e-5)


def test_frames_in_one_array_that_is_filled_again_are_each_their_own():
  frames = np.random.default_rng(0).integers(0, 256, (9, 16, 16, 3), np.uint8)

  def video():
    frame = np.empty_like(frames[0])
    for each in frames:
      frame[:] = each
      yield frame

  model = of_weights(source()).at_size()
  for batch_size in (1, 4):
    found = model.features(video(), batch_size=batch_size)
    np.testing.assert_allclose(found, model.features(frames), atol=1e-5)


@pytest.mark.parametrize("wrong", ["closed", "cut", "La"])
def test_what_pillow_cannot_give_is_named(images, tmp_path, wrong):
  path = tmp_path / "wrong.png"
  path.write_bytes((images / "0.png").read_bytes()[: 60 if wrong == "cut" else None])
  model = of_weights(source()).at_size()
  with Image.open(path) as image:
    if wrong == "closed":
      image.close()
    if wrong == "La":
      image = Image.new("LA", (4, 4)).convert("La")
    good, bad = model.predict([images / "0.png", image])
    assert good.classes
    assert bad.name == "image 2"
    assert re.search(r"Pillow cannot give its pixels: \w", bad.error)
    with pytest.raises(ValueError, match=r"image 2 cannot .*: Pillow .*\nimage 3 cannot be read: "):
      model.features([images / "0.png", image, b"no image"])


def test_a_second_call_compiles_nothing(images):
  """A user may ask for one image after the other."""
  model, compiled = of_weights(source()).at_size(40), []  # as in no other test
  note = lambda event, *_, **__: compiled.append(event) if "backend_compile" in event else None
  jax.monitoring.register_event_duration_secs_listener(note)
  try:
    counts = []
    for name in ("0.png", "2.png"):
      model.predict(images / name, top=3)
      model.features(images / name)
      counts.append(len(compiled))
  finally:
    jax.monitoring.unregister_event_duration_listener(note)
  assert 0 < counts[0] == counts[1]


@pytest.mark.parametrize("representation", ["pre_logits", "patches"])
def test_features_are_those_of_the_card(images, representation):
  model = of_weights(source(representation=representation))
  path = images / "0.png"
  pixels = np.asarray(Image.open(path), np.float32)[None] / 127.5 - 1
  _, features = model.module.apply({"params": model.params}, pixels, train=False)
  expected = np.asarray(features[representation]).reshape(-1, 32).mean(axis=0)
  np.testing.assert_allclose(model.features(path), expected[None], atol=1e-5)
  assert model.features([]).shape == (0, 32)


@pytest.mark.parametrize(
  ("image", "message"),
  [
    (np.zeros((9, 9, 3), np.float32), "image 1 cannot be read: it is an array of float32; give a"),
    (
      Image.new("I;16", (9, 9)),
      "its mode is I;16, .*; give the path of its file, or uint8",
    ),
    ([None], "it is NoneType; give a path"),
    ("none.png", "none.png cannot be read"),
    ("http://b/a.png", "cannot be read: http://b/a.png is a URL"),
    ("~none/a.png", "cannot be read: ~none/a.png: there is no user ~none here"),
    (np.zeros((9, 9, 4), np.uint8), "image 1 cannot be read"),
    (np.zeros((0, 9, 3), np.uint8), r"image 1 cannot be read: Pixels are uint8 \(0, 9, 3\)"),
  ],
)
def test_what_is_no_image_is_refused(image, message):
  model = of_weights(source())
  with pytest.raises(ValueError, match=message):
    model.features(image)
  (prediction,) = model.predict(image)
  assert re.search(message, f"{prediction.name} cannot be read: {prediction.error}")
  assert not prediction.classes


def test_files_of_predictions(images, tmp_path, capsys):
  weights.write(tmp_path / "w.npz", source())
  arguments = ["--source", str(tmp_path / "w.npz"), "--images"]
  for name in ("out.csv", "out.json"):
    with pytest.raises(SystemExit) as left:
      tool.main([*arguments, str(images), "--top", "2", "--output", str(tmp_path / name)])
    assert left.value.code == 1
    errors = capsys.readouterr().err
    assert "broken.jpg was skipped" in errors
    assert "1 of 7 images could not be read" in errors
  rows = list(csv.DictReader((tmp_path / "out.csv").read_text().splitlines()))
  objects = json.loads((tmp_path / "out.json").read_text())
  assert (len(rows), len(objects)) == (12, 6)
  flat = [(o["path"], k["name"], k["probability"]) for o in objects for k in o["classes"]]
  assert [(r["path"], r["class"], float(r["probability"])) for r in rows] == flat
  for form in ("csv", "json"):
    with pytest.raises(SystemExit):
      tool.main([*arguments, str(images), "--top", "2", "--format", form])
    assert capsys.readouterr().out == (tmp_path / f"out.{form}").read_text()

  paths = [str(images / f"{i}.png") for i in (0, 2, 4)]
  tool.main([*arguments, *paths[:2], "--images", paths[2]])
  assert [line.split(": ")[0] for line in capsys.readouterr().out.splitlines()] == paths


def test_logits_that_are_not_finite_are_no_predictions(images, tmp_path, capsys):
  read = source()
  read.params["head"] = jax.tree.map(lambda x: np.full_like(x, 3e38), read.params["head"])
  model = of_weights(read).at_size()
  assert model.predict(images / "0.png")[0].error == predictions.NOT_FINITE
  weights.write(tmp_path / "w.npz", read)
  for form in tool.FORMATS:
    with pytest.raises(SystemExit) as left:
      tool.main(["--source", str(tmp_path / "w.npz"), "--images", str(images), "--format", form])
    assert left.value.code == 1
    output, errors = capsys.readouterr()
    assert "nan" not in output.lower()
    words = "1 of 7 images could not be read, and 6 of 7 images have logits that are not finite"
    assert words in errors


def test_features_that_are_not_finite_are_none(images):
  read = source()
  kernel = read.params["embedding"]["kernel"]
  read.params["embedding"]["kernel"] = np.full_like(kernel, np.inf)
  with pytest.raises(ValueError, match="the features of 1 of 1 images are not finite numbers"):
    of_weights(read).features(images / "0.png")


def test_what_is_printed_is_one_line_and_no_formula():
  name = "=cmd\x1b[2J\nvit_jax: Done"
  done = [predictions.Prediction("a\u202e.png", ((name, 0.5),))]
  assert "".join(predictions.lines(done, "text")) == (
    "a\\u202e.png: =cmd\\x1b[2J\\nvit_jax: Done 50.0%\n"
  )
  assert list(csv.reader("".join(predictions.lines(done, "csv")).splitlines(keepends=True)))[1] == [
    "a\u202e.png",
    "1",
    f"'{name}",
    "0.5",
  ]
