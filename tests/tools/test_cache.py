"""tools/cache.py as a user runs it: what it says, and its exit status."""

import sys

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
