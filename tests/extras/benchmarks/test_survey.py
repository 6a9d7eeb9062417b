"""The search for the largest batch, and a survey of trials that compute nothing."""

import contextlib
import json
import math

import pytest

from vit_jax.config import ConfigError, RunError
from vit_jax.extras.benchmarks import processes, results, survey, trial
from vit_jax.extras.benchmarks.case import Case, cases
from vit_jax.extras.benchmarks.survey import Survey
from vit_jax.extras.commands import speed as tool

CASES = [Case("inference", "ViT-B/16", 224), Case("training", "ViT-B/16", 224)]


@pytest.mark.parametrize("most", [0, 1, 2, 3, 31, 32, 100, 5000])
@pytest.mark.parametrize("first", [1, 32])
def test_the_largest_batch_is_found_and_twice_that_was_refused(most, first):
  """`most` images fit. Nothing is tried twice, and nothing is known before the end."""
  tried = {}
  while batch := survey.next_batch(tried, first):
    assert batch not in tried
    assert survey.largest(tried) is None
    tried[batch] = batch <= most
  found = survey.largest(tried)
  assert found == max((2**k for k in range(14) if 2**k <= most), default=0)
  assert tried[2 * found or 1] is False
  assert found == 0 or tried[found]


class Device:
  """Takes the place of a device on which `most` images fit, at 100 images/s, for some trials."""

  def __init__(self, folder, most=20, error="", name="a device", trials=math.inf):
    self.calls, self.most, self.error, self.left = [], most, error, trials
    self.survey = Survey(folder, name, 8, self._run)

  def _run(self, case, batch):
    if len(self.calls) == self.left:
      raise KeyboardInterrupt
    self.calls.append((case.what, batch))
    if batch > self.most:
      return {"error": self.error} if self.error else dict(fits=False, seconds=None)
    return dict(fits=True, seconds=batch / (100 + batch))


def test_a_survey_goes_on_where_it_was_stopped(tmp_path):
  """Stopped after each trial in turn, all trials are made once."""
  whole = Device(tmp_path / "whole")
  assert whole.survey.do(CASES) == []
  assert whole.calls == [(what, n) for what in ("inference", "training") for n in (8, 16, 32)]
  path, parts = tmp_path / "parts", []
  for _ in whole.calls:
    part = Device(path, trials=1)
    with contextlib.suppress(KeyboardInterrupt):
      part.survey.do(CASES)
    parts += part.calls
  assert parts == whole.calls
  assert part.survey.trials() == whole.survey.trials()
  again = Device(path)
  assert again.survey.do(CASES) == []
  assert again.calls == []


def test_results_are_those_of_the_trials(tmp_path):
  device = Device(tmp_path)
  device.survey.do(CASES[:1])
  results.write(tmp_path, device.survey.trials(), "Measured on a device.", "a command")
  (line,) = results.lines(device.survey.trials())
  assert (line.largest_batch, line.batch) == (16, 16)
  assert line.images_per_second == pytest.approx(116)
  assert line.gflops == CASES[0].gflops()
  page = (tmp_path / "results.md").read_text()
  assert "| inference | ViT-B/16 | 224 |" in page
  assert "Measured on a device." in page
  for kind, head in (("svg", b"<?xml"), ("png", b"\x89PNG")):
    assert (tmp_path / f"figure.{kind}").read_bytes().startswith(head)


def test_what_was_not_measured_is_not_reported(tmp_path):
  """A trial that fails for another reason than memory says nothing about memory."""
  device = Device(tmp_path, error="RuntimeError: the cable")
  (first, second) = device.survey.do(CASES)
  assert first == "ViT-B/16, 224 px, inference, 32 images failed: RuntimeError: the cable."
  assert "training" in second
  lines = results.lines(device.survey.trials())
  assert [line.largest_batch for line in lines] == [None, None]
  assert [line.batch for line in lines] == [16, 16]
  assert {row["batch"] for row in device.survey.trials()} == {"8", "16"}
  none = Device(tmp_path / "none", most=0)
  assert none.survey.do(CASES[:1]) == []
  (line,) = results.lines(none.survey.trials())
  assert (line.largest_batch, line.images_per_second, line.batch) == (0, None, None)
  results.write(tmp_path / "none", none.survey.trials(), "", "")


def test_figures_of_two_devices_are_not_mixed(tmp_path):
  Device(tmp_path).survey.do(CASES[:1])
  with pytest.raises(ConfigError, match="has results of a device, and these would be of another"):
    Device(tmp_path, name="another").survey.do(CASES)


def test_a_folder_that_cannot_be_made_is_told_before_the_first_trial(tmp_path):
  (tmp_path / "file").touch()
  device = Device(tmp_path / "file")
  with pytest.raises(RunError, match="cannot be written to"):
    device.survey.do(CASES)
  assert device.calls == []


def test_sizes_that_the_patches_do_not_tile():
  assert [case.image_size for case in cases(["ViT-H/14"], [224, 384, 512])[:3]] == [224, 378, 504]
  with pytest.raises(ConfigError, match="Images of 16 pixels are smaller than a patch of ViT-B/32"):
    cases(["ViT-B/32"], [16])
  with pytest.raises(ConfigError, match=r"ViT-BB/16.*nearest: ViT-B/16"):
    cases(["ViT-BB/16"], [224])
  assert len(cases(tool.MODELS, tool.SIDES)) == 2 * len(tool.MODELS) * len(tool.SIDES)


def test_the_tool_prints_what_was_measured_and_says_what_failed(tmp_path, monkeypatch, capsys):
  def in_process(_, function, *arguments):
    if function is trial.device:
      return dict(platform="cpu", kind="cpu", count=1)
    case, batch, memory = arguments
    assert memory == 2 * 2**30
    if case.what == "training":
      return {"error": "RuntimeError: the cable"}
    return dict(fits=batch <= 2, seconds=0.5 if batch <= 2 else None)

  monkeypatch.setattr(processes, "in_process", in_process)
  command = ["--model", "ViT-Ti/16", "--image-size=32", "--memory=2", f"--workdir={tmp_path}"]
  with pytest.raises(SystemExit) as left:
    tool.main([*command, "--format=json"])
  assert left.value.code == 1
  output = capsys.readouterr()
  (row,) = json.loads(output.out)
  assert (row["images_per_second"], row["batch"], row["largest_batch"]) == (4.0, 2, 2)
  said = output.err.splitlines()[-1]
  assert said.startswith("speed: ViT-Ti/16, 32 px, training, 1 images failed: RuntimeError: the")
  assert "Measured on 1 x cpu, 2 GiB." in (tmp_path / "results.md").read_text()


def test_the_command_on_the_page_is_for_all_that_was_tried():
  tried = [("ViT-B/32", "224"), ("R50x1", "128"), ("R50x1", "224"), ("ViT-B/32", "128")]
  trials = [dict(model=model, image_size=side) for model, side in tried]
  words = tool.flags().parse_args(["--model", "R50x1", "--topology=v3:2x2"])
  (asked,) = tool.asked(words, trials)
  found = tool.flags().parse_args(asked)
  assert (found.model, found.image_size) == (["ViT-B/32", "R50x1"], [128, 224])
  assert (found.topology, found.workdir) == ("v3:2x2", None)
  here = tool.flags().parse_args(["--memory=2", "--workdir=w"])
  ((first, *_, last),) = tool.asked(here, trials)
  assert (first, last) == ("--memory=2", "--workdir=w")


def test_models_of_other_sizes_have_a_command_of_their_own():
  tried = {("ViT-B/32", "224"), ("R50x1", "128"), ("ViT-B/32", "64"), ("ViT-B/16", "128")}
  trials = [dict(model=model, image_size=side) for model, side in sorted(tried)]
  words = tool.flags().parse_args([])
  commands = [*map(tool.flags().parse_args, tool.asked(words, trials))]
  cases = [(model, str(n)) for one in commands for model in one.model for n in one.image_size]
  assert sorted(cases) == sorted(tried)
