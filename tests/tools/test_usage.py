"""Every tool: wrong usage is one line and status 2, a failure one line and 1, never a traceback."""

import errno
import importlib.util
import re
import runpy
import shlex
import sys

import numpy as np
import pytest
from PIL import Image

from tests import programs
from tests.weights import families
from vit_jax import weights
from vit_jax.config import ConfigError, RunError, Stopped
from vit_jax.config.tool_flags import ending, folder
from vit_jax.extras.commands import main
from vit_jax.process import machine

PREDICT = "--source {}/w.npz --images {}/i.png"
PETS = "--model ViT-B/16 --task pets"
PAIR = "--development a.py --final b.py"
DIGITS = "--config configs/vit_digits.py --config.data"
TOOLS = sorted(path.stem for path in (programs.ROOT / "tools").glob("*.py"))
COMMANDS = {name.replace("-", "_"): f"vit-jax {name}" for name in main.COMMANDS}
COMMANDS["prepare_data"] = COMMANDS["prepare"]


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
  monkeypatch.setenv("GLIBC_TUNABLES", "")  # or the tool would start pytest again
  with pytest.raises(SystemExit) as left:
    runpy.run_path(str(programs.ROOT / "tools" / f"{tool}.py"), run_name="__main__")
  return left.value.code, capfd.readouterr().err


@pytest.mark.parametrize(
  ("tool", "arguments", "status", "message"),
  [
    ("export", "--source {}/none.npz --output {}/o.npz", 2, "none.npz does not exist"),
    ("export", "--source {} --output {}/o.npz", 2, "holds no weights in a known format"),
    ("export", "--source {}/w.npz --output {}/file/o.npz", 2, "file cannot be made: "),
    ("export", "--source {}/w.npz --output {}/d.npz", 2, "d.npz is a folder already"),
    ("export", "--source {}/w.npz --output {}/run", 1, "asks for what this project does not"),
    ("export", "--source {}/w.npz --output {}/file", 2, "is a file already"),
    ("export", "--source {}/w.npz --output {}/o.tflite", 2, "is no name for a format of weights"),
    ("export", "--source {}/w.npz --output {}/o.npz --step x", 2, "'x' is not a whole number"),
    ("export", "--source {}/bad.npz --output {}/o.npz", 1, "bad.npz cannot be read as weights"),
    ("convert_pickle", "--source {}/w.pth", 2, "The following arguments are required: --output"),
    ("report", "{}/none --output {}/r.html", 2, "none is no folder"),
    ("report", "{} --output {}/r.html", 2, "it has neither config.json nor metrics.jsonl"),
    ("report", "{}/run {}/run --output {}/r.html", 2, "given twice"),
    ("report", "{}/run --output {}/d.npz", 2, "d.npz is a folder"),
    ("report", "{}/run --output /dev/null/r.html", 2, "cannot be made"),
    ("predict", "--source {}/w.npz --images {}/none", 2, "none"),
    ("predict", f"{PREDICT} --output /dev/null/o.csv", 2, "cannot be made"),
    ("predict", f"{PREDICT} --image-size -4", 2, "'-4' is not a number of pixels"),
    ("probe", "{}/w.npz {}/none", 2, "none"),
    ("probe", "{}/w.npz digits --probes knn --output /dev/null/o", 2, "cannot be made"),
    ("probe", "{}/w.npz digits --probes x", 2, "invalid choice"),
    ("search", "{}/w.npz {}/none {}/i.png --output {}/s.html", 2, "none"),
    ("search", "{}/w.npz {} {}/i.png --output /dev/null/o/s.html", 2, "cannot be made"),
    ("predict", f"{PREDICT} --format json --output {{}}/d.npz", 2, "d.npz is a folder"),
    ("predict", f"{PREDICT} --features --output {{}}/d.npz", 2, "d.npz is a folder"),
    ("search", "{}/w.npz {} {}/i.png --output {}/d.npz", 2, "d.npz is a folder"),
    ("convert_pickle", "--source {}/w.pth --output {}/d.npz", 2, "d.npz is a folder"),
    ("probe", "{}/w.npz digits --output {}/o --cache /dev/null/o", 2, "--cache: the folder"),
    ("search", "{}/w.npz {} {}/i.png --output {}/s --cache {}/file", 2, "--cache: the folder"),
    ("dedup", "--train folder:{}/none --test digits --output {}/o", 2, "none"),
    ("dedup", "--train digits train --test digits test --output /dev/null/o", 2, "cannot be made"),
    ("dedup", "--train digits a b --test digits --output {}/o", 2, "more than a source and a spl"),
    ("prepare_data", "images x --split train=folder:{}/none", 2, "none"),
    ("prepare_data", "images x --split train=csv:{}/none.csv", 2, "none.csv"),
    ("prepare_data", "images x --split nonsense", 2, "is not SPLIT=SOURCE"),
    ("prepare_data", "images x --split t=folder:{} --data-dir /dev/null/o", 2, "cannot be made"),
    ("prepare_data", "convert {}/none", 2, "holds no dataset_info.json"),
    ("prepare_data", "build nonsense", 2, "has no dataset 'nonsense'"),
    ("visualize", "mistakes --source {} --output {}/o --split test", 2, "go with --images"),
    ("sweep", f"{PETS} --source {{}}/w.npz --config.init_from=b.npz", 2, "is what --source sets"),
    ("cost", "--modle R50x1", 2, "'--modle' is not a flag; nearest: --model,"),
    ("architecture", "--output /dev/null/x.svg", 2, "cannot be made"),
    ("models", "--output /dev/null/x.md", 2, "cannot be made"),
    ("scale", "--output /dev/null/x.md", 2, "cannot be made"),
    ("settings", "", 2, "The following arguments are required: --output"),
    ("settings", "--output /dev/null/x.md", 2, "cannot be made"),
    ("cache", f"{DIGITS}.threads=1", 2, "config.data.cache is empty"),
    ("cache", f"{DIGITS}.cache=x --config.data.cache_side=4", 2, "cache_side=4 is smaller"),
    ("cache", f"{DIGITS}.cache=/dev/null", 2, "cannot be made"),
    ("compile_check", "--config configs/none.py", 2, "no recipe configs/none.py"),
    ("vtab", "--source http://b/w.npz", 2, "http://b/w.npz is a URL"),
    ("cost", "--image-size 99999999999", 2, "'99999999999' is not a number of pixels"),
    ("compile_table", "--topologies v9", 2, "v9 is none of"),
    ("benchmark", "nonsense", 2, "invalid choice"),
    ("sweep", f"{PETS} --final a.py", 2, "Give either --model and --task"),
    ("sweep", PAIR, 2, "--learning-rates is missing"),
    ("sweep", f"{PAIR} --real", 2, "--real goes with --model and"),
    ("sweep", f"{PAIR} --learning-rates 1 --hyperrule", 2, "--hyperrule goes with"),
    ("study", "--study=configs/studies/head.py --workdir=", 2, "--workdir: the path is empty"),
    ("sweep", "--model x --task pets --config.seed", 2, "'--config.seed' is not a flag"),
    ("visualize", "filters --source {}/w.npz --output /dev/null/o", 2, "cannot be made"),
    ("speed", "--model ViT-B/32 --image-size 16", 2, "smaller than a patch of ViT-B/32"),
  ],
)
def test_usage_and_failures(data, tool, arguments, status, message, monkeypatch, capfd):
  if tool == "dedup" and importlib.util.find_spec("apache_beam") is None:
    pytest.skip("apache-beam is not installed (extra `dedup`)")
  got, said = run(tool, arguments.replace("{}", str(data)).split(), monkeypatch, capfd)
  last = said.strip().splitlines()[-1]
  assert "Traceback" not in said
  assert got == status, said
  assert re.search(message, last), last
  assert len(said.strip().splitlines()) == 1, said
  assert not (data / "o.npz").exists()


def test_every_tool_is_tried():
  marks = test_usage_and_failures.pytestmark[0].args[1]
  assert {row[0] for row in marks} == set(TOOLS)


# Prints the help of each tool, and which modules that take long to import are there after it.
HELP = """
import contextlib, json, runpy, sys

for tool in sys.argv[1:]:
  sys.argv = [f"tools/{tool}.py", "--help"]
  with contextlib.suppress(SystemExit):
    runpy.run_path(sys.argv[0], run_name="__main__")
  slow = ("jax", "tensorflow", "torch", "matplotlib")
  print([name for name in slow if name in sys.modules], end="\\n---\\n")
"""


def test_help_names_every_flag_and_imports_nothing_slow():
  """Runs in a new process, in which nothing has been imported."""
  done = programs.run([sys.executable, "-c", HELP, *TOOLS], GLIBC_TUNABLES="")
  assert done.returncode == 0, done.stderr
  for tool, text in zip(TOOLS, done.stdout.split("\n---\n")[:-1], strict=True):
    assert text.startswith(f"usage: {COMMANDS.get(tool, f'python tools/{tool}.py')} [-h]")
    assert text.endswith("[]"), (tool, text)
    underscored = {flag for flag in re.findall("--[a-z-]+(?:_[a-z]+)*", text) if "_" in flag}
    assert underscored <= {"--direct_running_mode", "--direct_num_workers"}


PAGES = [programs.ROOT / "README.md", *(programs.ROOT / "docs").rglob("*.md")]


def commands_of_pages():
  """The commands of tools in blocks of code, those that go over several lines too."""
  for page in PAGES:
    for block in re.findall(r"^```\w*\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
      for line in block.replace("\\\n", " ").splitlines():
        found = re.match(r"(?:\w+=\S+ )*(?:python tools/(\w+)\.py|vit-jax ([a-z-]+))(.*)", line)
        if found and found[2] not in main.OF_RUNS:
          tool = found[1] or found[2].replace("-", "_")
          yield pytest.param(tool, found[3], id=f"{page.stem}: {line[:60]}")


class Parsed(Exception):
  """The flags of a command were accepted."""


@pytest.mark.parametrize(("tool", "arguments"), [*commands_of_pages()])
def test_the_flags_of_a_command_on_a_page_are_accepted(tool, arguments, monkeypatch):
  def accepted(_):
    raise Parsed

  package = main.__package__ if tool.replace("_", "-") in main.COMMANDS else "tools"
  module = importlib.import_module(f"{package}.{tool}")
  monkeypatch.setattr(module, "ending", accepted)
  with pytest.raises(Parsed):
    module.main(shlex.split(arguments.removesuffix(" ..."), comments=True))


def test_flags_may_be_spelt_with_underscores():
  from vit_jax.extras.commands import prepare as prepare_data

  words = ["images", "x", "--split", "a", "--data_dir", "b", "--max_pixels=7"]
  found = prepare_data.flags().parse_args(words)
  assert (str(found.data_dir), found.max_pixels) == ("b", 7)


@pytest.mark.parametrize(
  ("error", "status", "said"),
  [
    (ConfigError("a\nb\x1b[2J"), 2, r"tool: a\nb\x1b[2J"),
    (RunError("a"), 1, "tool: a"),
    (Stopped("a"), 75, "tool: a"),
    (ValueError("a"), 1, "tool: a"),
    (OSError(errno.ENOSPC, "full", "x"), 1, "tool: [Errno 28] full: 'x'"),
    (MemoryError(), 1, f"tool: {machine.exhausted(MemoryError())}"),
    (KeyboardInterrupt(), 130, "tool: Interrupted."),
  ],
)
def test_how_a_tool_ends(error, status, said, capsys):
  with pytest.raises(SystemExit) as left, ending("tool"):
    raise error
  assert left.value.code == status
  assert capsys.readouterr().err == said + "\n"


def test_a_folder_that_cannot_be_written_to(tmp_path):
  assert folder(tmp_path / "a" / "b", "--x").is_dir()
  for path, reason in (("/proc/self", "cannot be written to"), ("a\0b", "cannot be made")):
    with pytest.raises(ConfigError, match=rf"--x: the folder .* {reason}"):
      folder(path, "--x")
