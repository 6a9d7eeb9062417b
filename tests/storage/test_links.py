"""Links in a workdir, which may come from a stranger, lead nowhere out of it."""

import pytest
from PIL import Image

from tests.report import made_run
from vit_jax import launch
from vit_jax.config import ConfigError
from vit_jax.inspection import records
from vit_jax.process.signals import StopRequest
from vit_jax.report import report

READERS = (
  lambda folder: report.html([folder], inside=False),
  records.evaluated,
  *(
    lambda folder, mode=mode: launch.launch(
      made_run.CONFIG, folder, StopRequest(), mode=mode, hosts=launch.Hosts()
    )
    for mode in ("train", "evaluate")
  ),
)


@pytest.fixture
def run(tmp_path):
  """A run with an evaluation, and a folder beside it with a picture that is nobody's business."""
  (tmp_path / "private/images").mkdir(parents=True)
  for place in ("private/0.png", "private/images/0.png"):
    Image.new("RGB", (16, 16), "red").save(tmp_path / place)
  folder = made_run.write(tmp_path / "run")
  made_run.write_set(folder)
  return folder


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize(
  ("place", "target"),
  [
    ("evaluation/1/test/images/0.png", "private/0.png"),
    ("evaluation/1/test/images", "private/images"),
    ("evaluation/2", "private"),
    ("evaluation", "private"),
    ("training_images", "private"),
    ("training_images", "nothing"),
    ("metrics.jsonl", "private/0.png"),
    ("training_images/a/b", "private"),
    ("metrics.jsonl.damaged", "private/new"),
    ("profile", "private"),
    ("heartbeats/0", "private/0.png"),
    ("lock", "private/new"),
    ("data/a/b", "private"),  # whatever its name
    ("checkpoints-damaged", "private"),
  ],
)
def test_what_leads_out_is_refused(run, tmp_path, place, target, read):
  path = run / place
  if path.exists():
    path.rename(tmp_path / "away")
  path.parent.mkdir(parents=True, exist_ok=True)
  path.symlink_to(tmp_path / target)
  with pytest.raises(ConfigError, match=rf"^{path} is a link out of the workdir"):
    read(run)


def test_what_stays_inside_is_followed(run, tmp_path):
  (run / "training_images").symlink_to("evaluation/1/test/images")  # relative, and inside
  (run / "checkpoints").symlink_to(tmp_path / "private")  # may be too large for the disk
  (tmp_path / "link").symlink_to(run)
  assert "A training image" in report.html([tmp_path / "link"], inside=False)
