"""Every tool: wrong usage is one line and status 2, a failure one line and 1, never a traceback."""

import errno
import os
import re
import runpy
import sys

import numpy as np
import pytest
from PIL import Image

from tests import programs
from tests.weights import families
from tools.ending import ending, folder
from vit_jax import weights
from vit_jax.config import ConfigError, RunError
from vit_jax.process import huge_pages

TOOLS = sorted(
  path.stem
  for path in (programs.ROOT / "tools").glob("*.py")
  if "__main__" in path.read_text(encoding="utf-8")
)


@pytest.fixture
def data(tmp_path, monkeypatch):
  """A folder with weights w.npz, an image i.png, and a file that is no folder."""
  weights.save(tmp_path / "w.npz", families.params("vit"))
  Image.fromarray(np.zeros((16, 16, 3), np.uint8)).save(tmp_path / "i.png")
  (tmp_path / "file").write_text("")
  (tmp_path / "bad.npz").write_text("no weights")
  (tmp_path / "d.npz").mkdir()
  (tmp_path / "run").mkdir()
  (tmp_path / "run" / "config.json").write_text('{"seed": 0}')  # a run's, not to be lost
  monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
  return tmp_path


def run(tool, arguments, monkeypatch, capfd):
  """Status and stderr of a tool that is run in this process."""
  monkeypatch.setattr(sys, "argv", [tool, *arguments])
  monkeypatch.setattr(huge_pages, "ask_for_huge_pages", lambda: None)  # would start pytest again
  with pytest.raises(SystemExit) as left:
    runpy.run_path(str(programs.ROOT / "tools" / f"{tool}.py"), run_name="__main__")
  return left.value.code, capfd.readouterr().err


@pytest.mark.parametrize(
  ("tool", "arguments", "status", "message"),
  [
    ("export", "--source {}/none.npz --output {}/o.npz", 2, "none.npz does not exist"),
    ("export", "--source {} --output {}/o.npz", 2, "is neither a workdir"),
    ("export", "--source {}/w.npz --output {}/file/o.npz", 2, "file cannot be made: "),
    ("export", "--source {}/w.npz --output {}/d.npz", 2, "d.npz is a folder already"),
    ("export", "--source {}/w.npz --output {}/run", 1, "does not describe a ViTForImage"),
    ("export", "--source {}/w.npz --output {}/file", 2, "is a file already"),
    ("export", "--source {}/w.npz --output /dev/null/o.npz", 2, "cannot be made: File exists"),
    ("export", "--source {}/w.npz --output {}/o.onnx", 2, "is no format for weights"),
    ("export", "--source {}/w.npz --output {}/o.npz --step x", 2, "'x' is no whole number"),
    ("export", "--source {}/w.npz --output {}/o.npz --step -1", 2, "'-1' is no whole number"),
    ("export", "--source {}/bad.npz --output {}/o.npz", 1, "bad.npz cannot be read as .npz"),
    ("export", "--source {}/w.onnx --output {}/o.npz", 2, "w.onnx does not exist"),
    ("predict", "--source {}/none.npz --images {}/i.png", 2, "none.npz does not exist"),
    ("predict", "--source {}/w.npz --images {}/none", 2, "none"),
    (
      "predict",
      "--source {}/w.npz --images {}/i.png --output /dev/null/o.csv",
      2,
      "cannot be made",
    ),
    ("predict", "--source {}/w.npz --images {}/i.png --image-size -4", 2, "'-4' is no whole"),
    ("predict", "--source {}/w.npz --images {}/i.png --batch-size 99999999", 2, "no whole number"),
    ("predict", "--source {}/w.npz --images {}/i.png --top 0", 2, "'0' is no whole number"),
    ("dedup", "--train folder:{}/none --test digits --output {}/o", 2, "none"),
    ("dedup", "--train digits train --test digits test --output /dev/null/o", 2, "cannot be made"),
    ("dedup", "--train digits train --test digits test --output {}/o --shown x", 2, "no whole"),
    ("prepare_data", "images x --split train=folder:{}/none", 2, "none"),
    ("prepare_data", "images x --split train=csv:{}/none.csv", 2, "none.csv"),
    ("prepare_data", "images x --split nonsense", 2, "is not SPLIT=folder:DIR"),
    ("prepare_data", "images x --split t=folder:{} --data_dir /dev/null/o", 2, "cannot be made"),
    ("prepare_data", "images x --split t=folder:{} --threads 0", 2, "no whole number"),
    ("prepare_data", "convert {}/none", 2, "holds no dataset_info.json"),
    ("prepare_data", "build nonsense", 2, "has no data set 'nonsense'"),
    ("fashion_transfer", "--workdir /dev/null/o", 2, "cannot be made: Not a directory"),
    ("fashion_transfer", "--workdir {}/new --output /dev/null/o", 2, "cannot be made"),
    ("cost", "--models nonsense", 2, "'nonsense' is no model"),
    ("cost", "--image-size 99999999999", 2, "image_size=99999999999"),
    ("cost", "--num-classes 0", 2, "num_classes=0 is too small"),
    ("cost", "--epochs nan", 2, "not a finite number"),
    ("cost", "--config {}/none.py", 2, "no recipe .*none.py"),
    ("compile_table", "--jobs 0", 2, "'0' is no whole number"),
    ("compile_table", "--topologies v9", 2, "v9 is none of"),
    ("benchmark", "nonsense", 2, "invalid choice"),
    ("sweep", "--model ViT-B/16", 2, "Give either --model and --task"),
    ("sweep", "--model x --task pets --learning-rates nan", 2, "'nan' is no number above 0"),
    ("sweep", "--model x --task pets --seeds 0 --learning-rates 1", 2, "--seeds=0 is too small"),
    ("vtab", "--source {}/none.npz --tasks nonsense", 2, "nonsense"),
  ],
)
def test_usage_and_failures(data, tool, arguments, status, message, monkeypatch, capfd):
  got, said = run(tool, arguments.replace("{}", str(data)).split(), monkeypatch, capfd)
  last = said.strip().splitlines()[-1]
  assert "Traceback" not in said
  assert got == status, said
  assert re.search(message, last), last
  before = [line for line in said.splitlines()[:-1] if not line.startswith(("usage:", " "))]
  assert not before, said
  assert not (data / "o.npz").exists()


def test_every_tool_is_tried():
  marks = test_usage_and_failures.pytestmark[0].args[1]
  # These two read their flags by absl: tests/tools/test_cache.py, test_compile_check.py.
  assert {row[0] for row in marks} | {"cache", "compile_check"} == set(TOOLS)


def test_a_cache_where_no_folder_can_be():
  done = programs.run(
    [
      sys.executable,
      "tools/cache.py",
      "--config=configs/vit_digits.py",
      "--config.data.cache=/dev/null",
    ]
  )
  assert (done.returncode, done.stderr) == (
    2,
    "vit_jax: config.data.cache: the folder /dev/null cannot be made: File exists.\n",
  )


@pytest.mark.parametrize(
  ("error", "status", "said"),
  [
    (ConfigError("a\nb\x1b[2J"), 2, r"tool: a\nb\x1b[2J"),
    (RunError("a"), 1, "tool: a"),
    (ValueError("a"), 1, "tool: a"),
    (OSError(errno.ENOSPC, "full", "x"), 1, "tool: [Errno 28] full: 'x'"),
    (MemoryError(), 1, "tool: The memory of this machine does not suffice."),
    (KeyboardInterrupt(), 130, "tool: Interrupted."),
  ],
)
def test_how_a_tool_ends(error, status, said, capsys):
  with pytest.raises(SystemExit) as left, ending("tool"):
    raise error
  assert left.value.code == status
  assert capsys.readouterr().err == said + "\n"


def test_a_folder_that_cannot_be_written_to(tmp_path, monkeypatch):
  assert folder(tmp_path / "a" / "b", "--x").is_dir()
  monkeypatch.setattr(os, "access", lambda path, mode: False)
  with pytest.raises(ConfigError, match=r"--x: the folder .* cannot be written to"):
    folder(tmp_path, "--x")
  with pytest.raises(ConfigError, match="cannot be made"):
    folder("a\0b", "--x")
