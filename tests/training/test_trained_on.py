"""What weights were trained on goes wherever they go, and none of it is scored."""

import dataclasses
import json
import os

import pytest

from tests import resolved
from tests.weights import families
from vit_jax import config as c
from vit_jax import weights
from vit_jax.config import parsing
from vit_jax.data import datasets as opened
from vit_jax.data.datasets import Trained, opener_of
from vit_jax.evaluation.classification import Classification
from vit_jax.evaluation.evaluations import open_alone
from vit_jax.evaluation.few_shot import FewShot
from vit_jax.evaluation.nearest_neighbours import Nearest
from vit_jax.extras.masked_patches.objective import Masked
from vit_jax.extras.masked_patches.reconstruction import Reconstruction
from vit_jax.storage import manifest
from vit_jax.training import run as runs
from vit_jax.training import start
from vit_jax.weights import Weights
from vit_jax.weights.card import Card

FORMS = ("w.npz", "w.msgpack", "w.safetensors", "folder", "run", "run/checkpoints/9")


@pytest.fixture
def folder(tmp_path):
  for label in ("a", "b"):
    (tmp_path / "images" / label).mkdir(parents=True)
    for index in range(20):
      (tmp_path / "images" / label / f"{index:02}.png").touch()
  return f"folder:{tmp_path / 'images'}"


def trained(*datasets):
  """The history of weights trained on datasets."""
  opener = opener_of(c.Data())
  return opened.trained_history([opener.open("", dataset) for dataset in datasets])


def stored(path, known):
  """Weights at `path`, in the form that its name says, with their history."""
  if path.name in ("run", "9"):
    workdir = path if path.name == "run" else path.parents[1]
    meta = workdir / "checkpoints" / "9" / "meta" / "metadata"
    meta.parent.mkdir(parents=True)
    told = {"config": {}, "images": [0, 0, 8], "trained_on": opened.history_as_dicts(known)}
    meta.write_text(json.dumps(told))
    manifest.write(meta.parents[1])
  else:
    names = tuple("abcde")
    card = Card(image_size=16, class_names=names, trained_on=known)
    weights.write(path, Weights(families.params("vit"), card))
  return str(path)


def run(train, test, **more):
  sets = {"test": Classification(**vars(test))} if test else {}
  data = c.Data(train=train)
  return resolved.config(
    model=c.Model(num_classes=2), data=data, batch_size=1, **({"evaluate": sets} | more)
  )


def refused(function, *arguments):
  with pytest.raises(c.ConfigError) as caught:
    function(*arguments)
  return str(caught.value)


@pytest.mark.parametrize("form", FORMS)
def test_weights_keep_it_in_every_form(tmp_path, folder, form):
  first, second, rest = (c.Dataset(folder, part) for part in ("[:50%]", "[50%:80%]", "[80%:]"))
  place = stored(tmp_path / form, trained(first, second))
  known = start.history_of(place)
  assert known == trained(first, second)
  for scored in (first, second):
    for refusal in (
      refused(open_alone, run(c.Dataset(), scored), known),
      refused(runs.open_data, run(rest, scored), known),
    ):
      said = f"What the weights or their teacher were trained on ({folder} {scored.split})"
      assert refusal.startswith(f"{said} and config.evaluate.")
      assert "20 images" in refusal or "12 images" in refusal
  assert open_alone(run(c.Dataset(), rest), known)
  data = runs.open_data(run(first, rest), known)
  assert (data.earlier, data.current) == (trained(second), trained(first))
  if form == "w.safetensors":  # which keep it without the card beside them
    (tmp_path / "w.safetensors.json").unlink()
    assert start.history_of(place) == weights.read(tmp_path / form).card.trained_on == known


def test_every_kind_of_set_is_compared(folder):
  known, rest = trained(c.Dataset(folder, "[:50%]")), c.Dataset(folder, "[50%:]")
  seen = c.Dataset(folder, "[40%:50%]")
  for settings in (
    dict(evaluate={"mine": FewShot(rest, seen, shots=(1,), seeds=1)}),
    dict(evaluate={"mine": Nearest(rest, seen, neighbours=1)}),
    dict(evaluate={"mine": Reconstruction(**vars(seen))}, objective=Masked()),
  ):
    config = dataclasses.replace(run(rest, None), **settings)
    assert refused(runs.open_data, config, known).startswith("What the weights or")


def test_a_dataset_is_found_from_anywhere(tmp_path, folder, monkeypatch):
  """By another path, from another folder; the weight of a mix does not matter."""
  monkeypatch.chdir(tmp_path)
  (known,) = trained(c.Weighted("folder:images", "[:50%]", exclude="", weight=3))
  assert known.dataset == c.Dataset(folder, "[:50%]")
  os.symlink(tmp_path / "images", tmp_path / "other")
  monkeypatch.chdir("/")
  other = c.Dataset(f"folder:{tmp_path}/other", "[40%:]")
  assert "have 4 images" in refused(open_alone, run(c.Dataset(), other), (known,))
  assert opened.for_any_folder(c.Dataset("tfds:a/b", exclude="list")).exclude == "/list"
  assert opened.for_any_folder(c.Dataset("tfds:a/b")).source == "tfds:a/b"


def test_what_is_lost_is_named_once(tmp_path, folder, caplog):
  known = trained(c.Dataset(folder, "[:50%]"), c.Dataset(folder, "[50%:80%]"))
  gone = Trained(c.Dataset("folder:/nowhere"), "x")
  (tmp_path / "images" / "a" / "new.png").touch()
  open_alone(run(c.Dataset(), c.Dataset(folder, "[95%:]")), (gone, *known))
  said, *changed = caplog.messages
  assert "checked whether images are scored that the weights or their teacher were trained" in said
  assert "folder:/nowhere (There is no folder" in said
  assert [said.split(" and")[0] for said in changed] == [
    f"What the weights or their teacher were trained on ({folder} {part}) has changed since, so "
    f"images of it may be in config.evaluate.test ({folder} [95%:])."
    for part in ("[:50%]", "[50%:80%]")
  ]
  caplog.clear()
  open_alone(run(c.Dataset(), c.Dataset("digits", "test")), known)  # of other folders
  assert not caplog.messages
  runs.open_data(run(c.Dataset(folder), None), (gone,))  # nothing is scored
  assert not caplog.messages


def test_other_splits_of_a_source_that_has_changed_are_told(tmp_path, folder, caplog):
  """Images may have been in another one; here they lie in a folder for each."""
  table = tmp_path / "images" / "list.csv"
  rows = [f"{split}/{i:02}.png,{'xy'[i % 2]},{split}\n" for split in "ab" for i in range(8)]
  table.write_text(f"path,label,split\n{''.join(rows[1:])}")
  train, test = (c.Dataset(f"csv:{table}", split) for split in "ab")
  known = trained(train)
  open_alone(run(c.Dataset(), test), known)
  assert not caplog.messages
  table.write_text(f"path,label,split\n{''.join(rows)}")
  for scored in (test, c.Dataset("digits", "test")):
    open_alone(run(c.Dataset(), scored), known)
  (said,) = caplog.messages
  assert f"({train.source} a) has changed since, so" in said
  assert said.endswith(f"images of it may be in config.evaluate.test ({test.source} b).")


def test_what_was_moved_is_not_lost(tmp_path, folder, caplog):
  """Its images are those of another folder that was trained on, which are compared."""
  known = trained(c.Dataset(folder, "[:50%]"))
  (tmp_path / "images").rename(tmp_path / "moved")
  moved = f"folder:{tmp_path / 'moved'}"
  there, rest = c.Dataset(moved, "[:50%]"), c.Dataset(moved, "[50%:]")
  data = runs.open_data(run(there, rest), known)
  open_alone(run(c.Dataset(), rest), (*data.earlier, *data.current))
  assert "in common" in refused(open_alone, run(c.Dataset(), there), (*known, *data.current))
  assert not caplog.messages
  open_alone(run(c.Dataset(), there), known)  # what is scored does not stand for it
  runs.open_data(run(c.Dataset(moved, "[:40%]"), rest), known)  # nor do fewer images
  assert [said.startswith("It cannot be checked") for said in caplog.messages] == [True, True]


def test_without_a_history_there_is_nothing_to_compare(tmp_path, folder):
  (tmp_path / "w.npz").touch()
  (tmp_path / "empty").mkdir()
  for place in ("", "w.npz", "gone.npz", "empty"):
    assert start.history_of(str(tmp_path / place) if place else "") == ()
  assert open_alone(run(c.Dataset(), c.Dataset(folder)), ())


HOSTILE = (
  *(3, "x", {}, [3], [{}], [{"identity": 3}], [{"identity": "x"}] * (opened.MAX_DATASETS + 1)),
  [{"identity": "x", "subset": "many"}],
  [{"identity": "x", "subset": -1}],
  [{"identity": "x", "source": ["a"]}],
  [{"identity": "x", "colour": "red"}],
)
# The file of each form that tells it, and its key.


@pytest.mark.parametrize(
  ("form", "file", "key"),
  [
    ("w.npz", "w.npz.json", "trained_on"),
    ("folder", "folder/config.json", "vit_jax_trained_on"),
    ("run", "run/checkpoints/9/meta/metadata", "trained_on"),
  ],
)
def test_a_history_of_a_stranger_is_not_trusted(tmp_path, form, file, key):
  for values in HOSTILE:
    with pytest.raises(ValueError, match="trained_on"):
      opened.read_history(values)
  place, path = stored(tmp_path / form, ()), tmp_path / file
  path.write_text(json.dumps(json.loads(path.read_text()) | {key: HOSTILE[-1]}))
  if form == "run":
    manifest.write(tmp_path / "run/checkpoints/9")
    assert "trained_on" in refused(start.read_recorded, tmp_path / "run")
  else:
    with pytest.raises(ValueError, match="trained_on"):
      weights.read(tmp_path / form)
  assert "trained_on" in refused(start.history_of, place)


def test_it_is_written_as_it_is_read():
  for dataset in (c.Dataset("folder:/é", "[:1]", "i", "", "/list", 7), c.Dataset()):
    known = (Trained(dataset, "x"),)
    assert opened.read_history(json.loads(json.dumps(opened.history_as_dicts(known)))) == known
  short = opened.history_as_dicts((Trained(c.Dataset("digits"), "x"),))
  assert short == [{"source": "digits", "identity": "x"}]
  assert parsing.dataset_of({"subset": 3}, "x") == c.Dataset(subset=3)
