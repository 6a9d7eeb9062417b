"""The command vit-jax prepare."""

import importlib.util
import io
import re
import sys
import tarfile
import threading

import numpy as np
import pytest

from tests import programs
from tests.data.made_sets import contents, folder, made, opened, write_images
from tests.data.tfds_fixture import jpeg_of
from vit_jax.data import sources
from vit_jax.data.sources import SourceError
from vit_jax.extras.commands import prepare as prepare_data
from vit_jax.extras.preparation import prepare, splits

pytestmark = pytest.mark.usefixtures("small_files")


def test_tfds_is_imported_before_there_are_threads(tmp_path, monkeypatch):
  """Two threads that import it at once deadlock, one time in forty."""
  write_images(tmp_path / "in", {"ant": 3, "bee": 3})
  threads, features = [], prepare._NewDataset.features

  def noted(*args, **options):
    threads.append(threading.current_thread())
    return features(*args, **options)

  monkeypatch.setattr(prepare._NewDataset, "features", noted)
  made(tmp_path, {"train": folder(tmp_path / "in")})
  assert threads[0] == threading.main_thread()


def test_the_command_makes_what_a_run_reads(tmp_path, capsys):
  write_images(tmp_path / "in", {"ant": 3, "bee": 3})
  (tmp_path / "val.csv").write_text("in/ant/000.jpg,ant\nin/bee/001.jpg,bee\n")
  for name in ("ant", "bee"):
    (tmp_path / "in" / name / "notes.txt").touch()
  split = [f"--split=train=folder:{tmp_path}/in", f"--split=val=csv:{tmp_path}/val.csv"]
  prepare_data.main(["images", "mine", *split, f"--data-dir={tmp_path}/tfds"])
  said = capsys.readouterr().out
  again = f"{tmp_path}/in/ant/000.jpg"
  for words in (
    "train: 6 images; left out as broken: 0",
    "in': 2 with the suffix '.txt' (",
    "In train and val 2 images are repeated.",
    f"  {again}: as {again}",
    f"{tmp_path}/tfds/mine/1.0.0 (--config.data.train.source=tfds:mine)",
  ):
    assert words in said
  assert len(opened("train+val")) == 8


def test_names_are_told_on_one_line(tmp_path, capsys):
  write_images(tmp_path / "in", {"ant": 2, "bee": 2})
  (tmp_path / "in/ant/0\nIn train 9.jpg").write_bytes(b"rubbish")
  (tmp_path / "in/ant/0\nIn val 9.txt").touch()
  data = f"--data-dir={tmp_path}/tfds"
  prepare_data.main(["images", "mine", f"--split=train=folder:{tmp_path}/in", data])
  lines = capsys.readouterr().out.splitlines()
  assert not [line for line in lines if line.startswith("In ")]
  assert any("/0\\nIn train 9.jpg: " in line for line in lines)


def test_a_split_that_the_data_lack_is_refused(tmp_path):
  write_images(tmp_path, {"ant": 3})
  for file, splits_of in (("two.csv", ("train", "validation", "")), ("one.csv", ["train"] * 3)):
    lines = (f"ant/00{i}.jpg,ant,{split}\n" for i, split in enumerate(splits_of))
    (tmp_path / file).write_text("path,label,split\n" + "".join(lines))
  two = f"csv:{tmp_path}/two.csv"
  with pytest.raises(SourceError, match="has the splits train, validation, and not 'val'"):
    splits.open_splits([f"train={two}", f"val={two}"])
  opened_splits = splits.open_splits([f"train={two}", f"validation={two}"])
  assert [len(source) for source in opened_splits.values()] == [1, 1]
  assert len(splits.open_splits([f"val=csv:{tmp_path}/one.csv"])["val"]) == 3


def test_columns_are_named_behind_the_source(tmp_path):
  write_images(tmp_path, {"ant": 2})
  rows = (f"here,ant/00{i}.jpg,{name},\n" for i, name in enumerate(("fly", "bee")))
  (tmp_path / "list.csv").write_text("site,photo,species,\n" + "".join(rows))
  table = f"train=csv:{tmp_path}/list.csv"
  found = splits.open_splits([f"{table},label_key=species,image_key=photo"])["train"]
  assert (len(found), found.class_names) == (2, ("bee", "fly"))
  with pytest.raises(SourceError, match=r"DATA,label_key=NAME and .* name them\.$"):
    splits.open_splits([table])


@pytest.mark.parametrize(
  ("words", "message"),
  [
    *(
      ([text], "is not SPLIT=SOURCE")
      for text in ("train", "train=DIR", "train=zip:x", "=folder:x", "tr ain=folder:x")
    ),
    (["all=folder:DIR"], '"all" means every split'),
    (["train=digits", "test=digits", "train=digits"], "--split train is given 2 times"),
  ],
)
def test_wrong_splits(words, message):
  with pytest.raises(SourceError, match=message):
    splits.open_splits(words)


def test_some_classes_of_another_data_set(tmp_path):
  write_images(tmp_path / "in", {"ant": 3, "bee": 4, "cat": 5})
  made(tmp_path, {"train": folder(tmp_path / "in")})
  found = splits.open_splits(["train=tfds:mine"], ["cat", "ant"])["train"]
  assert found.class_names == ("ant", "cat")
  every = contents(opened("train"))
  expected = {(image, (label // 2,)): 1 for image, (label,) in every if label != 1}
  assert len(expected) == 8
  assert contents(found) == expected
  assert [found.labels(row) for row in range(8)] == [found[row].labels for row in range(8)]
  for names, message in [(["bat"], "no split has a class 'bat'; nearest: "), (["cat", "x"], "'x'")]:
    with pytest.raises(SourceError, match=message):
      splits.open_splits(["train=tfds:mine"], names)


def test_a_split_may_lack_some_of_the_classes(tmp_path):
  write_images(tmp_path / "in", {"ant": 1, "bee": 2, "cat": 1})
  write_images(tmp_path / "less", {"bee": 2, "cat": 1})
  words = [f"train=folder:{tmp_path}/in", f"val=folder:{tmp_path}/less"]
  found = splits.open_splits(words, ["bee", "ant"])
  assert [one.class_names for one in found.values()] == [("ant", "bee"), ("bee",)]
  assert [len(one) for one in found.values()] == [3, 2]
  assert splits.checked_classes(found) == ("ant", "bee")
  with pytest.raises(SourceError, match='--classes leaves no image of split "val"; '):
    splits.open_splits(words, ["ant"])


@pytest.mark.parametrize(
  ("words", "message"),
  [
    (["build", "imagenet2012"], r"ILSVRC2012_img_train\.tar"),
    (["build", "no_such_set"], "has no dataset 'no_such_set'"),
    (["build", "mnist:9.9.9"], "mnist:9.9.9: .*9.9.9"),
  ],
)
def test_what_tfds_cannot_make_is_told_in_one_sentence(
  tmp_path, monkeypatch, capsys, words, message
):
  monkeypatch.setenv("HOME", str(tmp_path / "home"))
  monkeypatch.chdir(tmp_path)
  with pytest.raises(SystemExit, match="2"):
    prepare_data.main([*words, "--data-dir=~/tfds"])
  assert not (tmp_path / "~").exists()
  assert re.search(rf"prepare: .*{message}", capsys.readouterr().err, re.DOTALL)


def pack(path, files):
  """A tar archive of {name: bytes}."""
  with tarfile.open(path, "w") as archive:
    for name, data in files.items():
      entry = tarfile.TarInfo(name)
      entry.size = len(data)
      archive.addfile(entry, io.BytesIO(data))


@pytest.mark.skipif(
  importlib.util.find_spec("tensorflow") is None,
  reason="TensorFlow is not installed (extra `prepare`)",
)
@pytest.mark.parametrize("kind", ["build", "convert"])
def test_imagenet_from_an_archive_that_the_user_has(tmp_path, kind):
  """TFDS's own builder writes ArrayRecord, or TFRecord that is then converted."""
  manual = tmp_path / "tfds" / "downloads" / "manual"
  manual.mkdir(parents=True)
  rng = np.random.default_rng(0)
  pictures = {f"ILSVRC2012_val_{n:08d}.JPEG": jpeg_of(rng) for n in range(1, 6)}
  pack(manual / "ILSVRC2012_img_val.tar", pictures)
  words = ["build", "imagenet2012", f"--data-dir={tmp_path}/tfds"]
  if kind == "convert":
    builder = "tfds.builder('imagenet2012', data_dir=sys.argv[1], file_format='tfrecord')"
    code = f"import sys, tensorflow_datasets as tfds; {builder}.download_and_prepare()"
    programs.run([sys.executable, "-c", code, tmp_path / "tfds"]).check_returncode()
    words = ["convert", *(tmp_path / "tfds" / "imagenet2012").iterdir()]
  result = programs.run([sys.executable, "tools/prepare_data.py", *words])
  assert result.returncode == 0, result.stderr
  found = sources.open_source("tfds:imagenet2012", split="validation")
  images = [found[index].image for index in range(len(found))]
  assert sorted(images) == sorted(pictures.values())
