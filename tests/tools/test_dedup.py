"""vit-jax dedup as a user runs it, from folders to a run that leaves the copies out."""

import dataclasses
import importlib.util
import json
import os
import sys

import cv2
import numpy as np
import pytest

from tests import programs
from tests.data.natural import COPIES, encoded, photographs, tiles
from vit_jax import config as c
from vit_jax.data import datasets
from vit_jax.extras.commands import dedup
from vit_jax.extras.duplicates import find

TOOL = [sys.executable, "tools/dedup.py"]
needs_beam = pytest.mark.skipif(
  importlib.util.find_spec("apache_beam") is None,
  reason="apache-beam is not installed (extra `dedup`)",
)


def write(folder, named):
  """Images, or bytes of files, as FOLDER/thing/NAME."""
  (folder / "thing").mkdir(parents=True)
  for name, image in named.items():
    data = image if isinstance(image, bytes) else cv2.imencode(".png", image)[1].tobytes()
    (folder / "thing" / name).write_bytes(data)


@needs_beam
def test_planted_copies_are_listed_shown_and_left_out(tmp_path):
  known, others = photographs(9, side=96, seed=1), tiles(60)[:70]
  planted = {
    f"{i * 7:03}-planted.jpg": change(one)
    for i, (one, change) in enumerate(zip(known, COPIES.values(), strict=True))
  }
  rest = {f"{i:03}.jpg": encoded(one) for i, one in enumerate(others)}
  broken = {"zz-broken.jpg": b"rubbish", "zz-bomb.jpg": encoded(np.zeros((600, 600, 3), np.uint8))}
  write(tmp_path / "train", planted | rest | broken)
  write(tmp_path / "test", {f"{i}.jpg": one for i, one in enumerate(known)})
  (tmp_path / "more").mkdir()  # without folders of classes
  (tmp_path / "more/same.png").write_bytes(cv2.imencode(".png", others[3])[1].tobytes())
  command = [*TOOL, "--train", f"folder:{tmp_path}/train", "--output", tmp_path / "out"]
  command += ["--test", f"folder:{tmp_path}/test", "--test", f"folder:{tmp_path}/more"]
  done = programs.run([*command, "--format=json", "--max-pixels=300000"])
  assert done.returncode == 0, done.stderr
  assert json.loads(done.stdout) == {
    "train_images": 79,
    "test_images": 10,
    "broken_images": 2,
    "pairs": 10,
    "excluded": 10,
    "exclude": f"{tmp_path}/out/exclude.txt",
    "page": f"{tmp_path}/out/pairs.html",
  }
  for name in ("zz-broken.jpg", "zz-bomb.jpg"):
    assert f"Not compared: {tmp_path}/train/thing/{name}" in done.stderr
  assert "apitools" not in done.stderr  # Beam warns of it when it is imported
  assert sorted(os.listdir(tmp_path / "out")) == ["exclude.txt", "pairs.html", "pairs.jsonl"]

  dataset = c.Dataset(f"folder:{tmp_path}/train", exclude=f"{tmp_path}/out/exclude.txt")
  left = datasets.opener_of(c.Data()).source(dataset)
  names = {os.path.basename(left[i].name) for i in range(len(left))}
  assert names == (rest | broken).keys() - {"003.jpg"}


@needs_beam
@pytest.mark.parametrize(
  ("flag", "message"),
  [
    ("--shwon=3", "dedup: --shwon is neither a flag of this tool nor of Beam."),
    ("--runner=NoSuch", "dedup: Beam: Unexpected pipeline runner: NoSuch"),
  ],
)
def test_flags_that_nobody_knows(tmp_path, capsys, flag, message):
  words = ["--train", "digits", "train", "--test", "digits", "test", "--output", str(tmp_path)]
  with pytest.raises(SystemExit, match="2"):
    dedup.main([*words, flag])
  assert message in capsys.readouterr().err


def arguments(words, tmp_path):
  return dedup.flags().parse_args([*words.split(), "--output", str(tmp_path / "out")])


def test_without_beam_it_says_how_to_install_it(tmp_path, monkeypatch):
  monkeypatch.setitem(sys.modules, "apache_beam", None)
  monkeypatch.delitem(sys.modules, "vit_jax.extras.duplicates.pipeline", raising=False)
  monkeypatch.delattr(
    "vit_jax.extras.duplicates.pipeline", raising=False
  )  # imported by other tests
  with pytest.raises(c.ConfigError, match=r"apache_beam is not installed; .*'\.\[dedup\]'"):
    dedup.search(arguments("--train digits train --test digits test", tmp_path), [])


def test_a_part_is_that_of_training(tmp_path, monkeypatch):
  """Cut by class, which needs the labels; whole sets need none."""
  monkeypatch.setattr(find, "search", lambda train, tests, *_, **__: [train, *tests])
  (tmp_path / "digits").mkdir()
  monkeypatch.chdir(tmp_path)
  words = "--train folder:a [:90%] --test folder:a [90%:] --test digits --label-key=species"
  train, part, whole = dedup.search(arguments(words, tmp_path), [])
  assert (part, train.label_key) == (dataclasses.replace(train, split="[90%:]"), "species")
  assert (whole.source, whole.label_key) == ("folder:./digits", "")
