"""Links in a workdir, which may come from a stranger, lead nowhere out of it."""

import functools

import pytest
from PIL import Image

from tests.extras.report import made_run
from vit_jax import launch
from vit_jax.config import ConfigError
from vit_jax.extras.inspection import records
from vit_jax.extras.report import report
from vit_jax.process.console import StopRequest
from vit_jax.storage import workdir


def launched(folder, mode):
  launch.launch(made_run.CONFIG, folder, StopRequest(), mode=mode, hosts=launch.Hosts())


READERS = {
  "report": lambda folder: report.html([folder], inside=False),
  "evaluated": records.evaluated,
  "train": functools.partial(launched, mode="train"),
  "evaluate": functools.partial(launched, mode="evaluate"),
}


PLACES = (
  ("evaluation/1/test/images/0.png", "private/0.png"),
  ("evaluation/1/test/images", "private"),
  ("evaluation/2", "private"),
  ("evaluation", "private"),
  ("training_images", "nothing"),
  ("metrics.jsonl", "private/0.png"),
  ("training_images/a/b", "private"),
  ("metrics.jsonl.damaged", "private/new"),
  ("lock", "private/new"),
  ("data/a/b", "private"),  # whatever its name
)


@pytest.fixture
def private(tmp_path):
  """A folder beside a workdir, with a picture that is nobody's business."""
  (tmp_path / "private").mkdir()
  Image.new("RGB", (16, 16), "red").save(tmp_path / "private/0.png")
  return tmp_path


def link(private, place, target):
  path = private / "run" / place
  path.parent.mkdir(parents=True, exist_ok=True)
  path.symlink_to(private / target)
  return path


@pytest.mark.parametrize(("place", "target"), PLACES)
def test_what_leads_out_is_refused(private, place, target):
  path = link(private, place, target)
  with pytest.raises(ConfigError, match=rf"^{path} is a link out of the workdir"):
    workdir.check_links(private / "run")


@pytest.mark.parametrize("read", READERS)
def test_runs_evaluations_and_reports_refuse_it(private, read):
  made_run.write(private / "run")
  path = link(private, "evaluation", "private")
  with pytest.raises(ConfigError, match=rf"^{path} is a link out of the workdir"):
    READERS[read](private / "run")


def test_what_stays_inside_is_followed(private):
  run = made_run.write(private / "run")
  made_run.write_set(run)
  (run / "training_images").symlink_to("evaluation/1/test/images")  # relative, and inside
  (run / "checkpoints").symlink_to(private / "private")  # may be too large for the disk
  (private / "link").symlink_to(run)
  assert "A training image" in report.html([private / "link"], inside=False)
