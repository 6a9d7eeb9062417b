"""Wrong usage is met with one sentence and status 2, before any device is touched."""

import re
import shlex
import time

import pytest

from tests import programs
from vit_jax import recipes


def command(tmp_path, *arguments):
  return [*programs.MAIN, f"--workdir={tmp_path}/run", *arguments]


DIGITS = "--config=configs/vit_digits.py"

# JAX cannot use any device here, so that touching one would be a different error.
NO_DEVICE = dict(JAX_PLATFORMS="none-such")


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    ([DIGITS, "--workdir=az://bucket/run"], r"az://bucket/run is a URL, .* folders of this"),
    ([DIGITS, "--config.init_from=http://b/w.npz"], r"http://b/w\.npz is a URL"),
    ([DIGITS, "--workdir=gs://"], r"gs:// names no bucket; give gs://BUCKET/FOLDER"),
    ([DIGITS, "--mode=test"], r"mode=test.*train\|evaluate"),
    ([DIGITS, "--config.model.num_classes=9"], r"num_classes=9, but digits has 10 classes"),
    ([DIGITS, "--config.data.train.split=dev"], r"\"train\" and \"test\", not \"dev\""),
    (
      [DIGITS, "--config.batch_size=1400", "--config.duration.epochs=2"],
      r"warmup is 100 steps, longer than the run of 2 .*batch_size=1400 and 1437 training images",
    ),
    (["--config=configs/vit_b16_i1k.py"], r"imagenet2012.*vit-jax prepare build imagenet2012`"),
  ],
)
def test_wrong_usage(tmp_path, arguments, message):
  result = programs.run(command(tmp_path, *arguments), **NO_DEVICE, TFDS_DATA_DIR=str(tmp_path))
  assert result.returncode == 2, result.stderr
  (line,) = result.stderr.strip().splitlines()
  assert line.startswith("vit_jax: ")
  assert re.search(message, line), line
  assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
  ("flag", "devices", "message"),
  [
    ("--config.batch_size=30", 4, "batch_size=30 cannot be split over 4 devices"),
    ("--config.optimizer.decay_rules=()", 1, "No rule of config.optimizer.decay_rules matches"),
  ],
)
def test_what_depends_on_devices_or_parameters_is_wrong_usage_too(tmp_path, flag, devices, message):
  result = programs.run(command(tmp_path, DIGITS, flag), devices=devices)
  assert result.returncode == 2, result.stderr
  assert message in programs.message(result)
  assert not (tmp_path / "run").exists()


def test_a_mistyped_setting_is_refused_before_jax_is_loaded():
  code = (
    "import sys\n"
    "from vit_jax.config import recipe_file\n"
    "for name in ('vit_digits', 'vit_l16_jft', 'masked_vit_b16_jft'):\n"
    "  recipe_file.load(f'configs/{name}.py')\n"
    "assert 'jax' not in sys.modules\n"
  )
  result = programs.run([programs.MAIN[0], "-c", code], anew=True)
  assert result.returncode == 0, result.stderr


def test_help_is_quick_and_names_the_flags():
  begin = time.monotonic()
  result = programs.run([*programs.MAIN, "--help"], anew=True)
  assert time.monotonic() - begin < 10  # under 3 s on an idle machine
  assert result.returncode == 0
  assert "--config" in result.stdout
  assert "--workdir" in result.stdout
  assert "75" in result.stdout


def test_the_settings_of_a_command_line_are_written_as_a_recipe(tmp_path):
  path, seed = tmp_path / "my own; touch mine.py", "--config.seed=7"
  words = command(tmp_path, DIGITS, seed, f"--write_recipe={path}")
  written = programs.run(words)
  assert written.returncode == 0, written.stderr
  shown = written.stdout.partition("train with: ")[2].removesuffix(")\n")
  assert shlex.split(shown)[-1] == f"--config={path}"
  assert recipes.load(str(path)) == recipes.resolve("configs/vit_digits.py", [seed])
  again = programs.run(words)
  assert again.returncode == 2
  assert "mine.py must be a new file whose name ends in .py" in again.stderr
  assert not (tmp_path / "run").exists()
