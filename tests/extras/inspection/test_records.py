"""The worst mistakes, from the files that an evaluation writes."""

import json

import numpy as np
import pytest
from PIL import Image

from vit_jax.config import ConfigError
from vit_jax.evaluation import results
from vit_jax.extras.inspection import views
from vit_jax.extras.inspection.gallery import Gallery, gallery
from vit_jax.extras.inspection.records import evaluated, mistakes
from vit_jax.storage import files

HOSTILE = 'a,"b\n$x'


@pytest.fixture
def workdir(tmp_path):
  known = results.Details(
    ("cat", HOSTILE, "dog"),
    labels=np.array([0, 1, 2, 0]),
    predictions=np.array([0, 2, 1, 1]),
    probabilities=np.array([0.9, 0.4, 0.8, 0.6]),
    name=lambda row: f"image {row}",
  )
  results.write_predictions(tmp_path / "evaluation" / "1" / "test", known)
  return tmp_path


def test_the_most_confident_comes_first(workdir):
  (path,) = evaluated(workdir)
  found, total = mistakes(path)
  assert total == 4
  assert [one.name for one in found] == ["image 2", "image 3", "image 1"]
  assert found[0] == ("image 2", "dog", HOSTILE, 0.8)


def test_a_probability_of_nan_comes_last(workdir):
  (path,) = evaluated(workdir)
  path.write_text(path.read_text().replace("0.8", "nan").replace("0.4", "NaN"))
  found, _ = mistakes(path)
  assert [one.name for one in found] == ["image 3", "image 1", "image 2"]


def test_an_image_whose_name_is_no_text_is_found(workdir):
  name = "image \udcff"  # as Python reads the name of a file that is not UTF-8
  known = results.Details(("cat", "dog"), np.array([0]), np.array([1]), np.ones(1), lambda _: name)
  results.write_predictions(workdir / "evaluation" / "1" / "test", known)
  shown = views.mistakes(workdir, 4, Gallery([name], lambda _: np.zeros((4, 4, 3), np.uint8)))
  assert "test: 1 of 1 image is wrong" in shown.text
  assert [picture for picture, _ in shown.pictures] == ["mistakes_test.png"]


def test_images_may_be_named_relative_to_the_current_folder(tmp_path, monkeypatch):
  name = tmp_path / "photos" / "0.png"
  known = results.Details(("a", "b"), np.array([0]), np.array([1]), np.ones(1), lambda _: str(name))
  results.write_predictions(tmp_path / "run" / "evaluation" / "1" / "test", known)
  name.parent.mkdir()
  Image.fromarray(np.zeros((4, 4, 3), np.uint8)).save(name)
  monkeypatch.chdir(tmp_path)
  for word in ("photos", "folder:photos"):
    shown = views.mistakes(tmp_path / "run", 4, gallery([word], "", 4))
    assert [picture for picture, _ in shown.pictures] == ["mistakes_test.png"]


def test_a_folder_without_settings_needs_the_images(workdir):
  with pytest.raises(ConfigError, match="are not known; give the images with --images"):
    views.mistakes(workdir, 4, None)


def test_a_set_without_images_at_hand_has_no_picture(workdir):
  known = results.Details(("a", "b"), np.array([0]), np.array([1]), np.ones(1), lambda _: "other")
  results.write_predictions(workdir / "evaluation" / "1" / "another", known)
  names = [f"image {i}" for i in range(4)]
  shown = views.mistakes(workdir, 4, Gallery(names, lambda _: np.zeros((4, 4, 3), np.uint8)))
  assert [picture for picture, _ in shown.pictures] == ["mistakes_test.png"]
  assert list(shown.numbers) == ["mistakes_another.csv", "mistakes_test.csv"]
  assert "other of the evaluation set 'another' is not among the 4 images" in shown.text


def test_mistakes_say_of_which_images_and_weights_they_are(workdir):
  origin = {"step": 40, "average": True, "dataset": "digits test"}
  files.write_text(workdir / "evaluation/1/test" / results.METRICS, json.dumps(origin))
  names = [f"image {i}" for i in range(4)]
  shown = views.mistakes(workdir, 4, Gallery(names, lambda _: np.zeros((4, 4, 3), np.uint8)))
  whose = "test: digits test, step 40, moving average of the parameters"
  assert shown.text.startswith(f"{whose}: 3 of 4 images are wrong;")
  assert shown.pictures[0][1].get_suptitle().replace("\n", " ") == whose
  files.write_text(workdir / "evaluation/1/test" / results.METRICS, "[")
  with pytest.raises(ValueError, match=r"test/metrics.json does not hold metrics of an evaluation"):
    views.mistakes(workdir, 4)


@pytest.mark.parametrize(
  ("source", "message"),
  [
    ("weights.npz", "is not the workdir of a run: it has no config.json"),
    ("run/checkpoints/40", "is not the workdir of a run: it has no config.json"),
    ("nothing", "is not the workdir of a run: it has no config.json"),
    ("run", "holds no evaluation.*vit-jax evaluate "),
  ],
)
def test_what_holds_no_evaluation(tmp_path, source, message):
  (tmp_path / "run/checkpoints/40").mkdir(parents=True)
  (tmp_path / "run/config.json").write_text("{}")
  (tmp_path / "weights.npz").touch()
  with pytest.raises(ConfigError, match=message):
    evaluated(tmp_path / source)


def test_an_evaluation_without_predictions_is_not_asked_for_again(workdir):
  """Sets with several labels an image, probes and reconstructions have metrics alone."""
  (path,) = evaluated(workdir)
  path.with_name("metrics.json").write_text("{}")
  assert evaluated(workdir) == [path]
  path.unlink()
  (workdir / "config.json").write_text("{}")
  with pytest.raises(ConfigError, match=r"have no predictions.csv: only the sets of"):
    evaluated(workdir)


@pytest.mark.parametrize(
  "text", ["", "name,label\n", "a,b,c,d\n", "name,label,prediction,probability\nx,a,b\n", "\0\n"]
)
def test_another_file(workdir, text):
  (path,) = evaluated(workdir)
  path.write_text(text)
  with pytest.raises(ConfigError, match="does not hold predictions"):
    mistakes(path)
