"""tools/cache.py as a user runs it: what it says, and its exit status."""

import sys

import pytest

from tests import programs

TOOL = [sys.executable, "tools/cache.py", "--config=configs/vit_digits.py"]


def test_a_cache_is_made_once(tmp_path):
  command = [*TOOL, f"--config.data.cache={tmp_path}"]
  for count in (1437, 0):
    done = programs.run(command)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{count:,} of 1,437 images are still to be cached: about 0 MB; ")
  names = sorted(path.name for path in tmp_path.iterdir())
  assert names == ["cache.json", *(f"images-00000{i}-of-000002.array_record" for i in (0, 1))]


@pytest.mark.parametrize(
  ("flags", "message"),
  [
    ([], "config.data.cache is empty; name a folder for the cache."),
    (
      ["--config.data.cache=x", "--config.data.cache_side=4"],
      "config.data.cache_side=4 is smaller",
    ),
  ],
)
def test_wrong_flags(flags, message):
  done = programs.run([*TOOL, *flags])
  assert done.returncode == 2
  assert done.stderr.startswith(f"cache: {message}")
  assert done.stderr.count("\n") == 1


def test_a_run_without_its_cache_says_how_to_make_it(tmp_path):
  done = programs.run(programs.digits(tmp_path / "run", f"--config.data.cache={tmp_path}/none"))
  assert done.returncode == 2
  assert f'no cache in "{tmp_path}/none" (config.data.cache); make it with' in done.stderr
