"""An objective is one file and one line: a toy goes through the main program."""

import json

import pytest

from tests.learning.hidden_channel import LINE, HiddenChannel
from tests.seams import program
from vit_jax import recipes, registry
from vit_jax.config import ConfigError
from vit_jax.extras.report import report
from vit_jax.extras.settings_page import page
from vit_jax.recipes import cost
from vit_jax.storage import metrics_log

TOY = (
  "--config.objective.kind=hidden_channel",
  "--config.evaluate.test.source=",  # it trains no head
  "--config.data.train.label_key=",
)


@pytest.fixture(autouse=True)
def line(monkeypatch):
  monkeypatch.setitem(registry.OBJECTIVES, "hidden_channel", LINE)


@pytest.mark.usefixtures("one_device")
def test_it_trains_and_warns_is_counted_and_is_in_the_report(tmp_path, monkeypatch, capsys):
  warnings = iter(["dark", "dark", "", "dark"])
  monkeypatch.setattr(HiddenChannel, "warning", lambda *_: next(warnings))
  words = (*TOY, "--config.objective.scale=2", "--config.duration.steps=4")
  whole = tmp_path / "whole"
  assert program.run(whole, *words)
  said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Warning")]
  assert said == ["Warning: step 1: dark", "Warning: step 4: dark"]  # not again while it stays
  settings = json.loads((whole / "config.json").read_text())["objective"]
  assert settings == {"kind": "hidden_channel", "scale": 2.0}
  *_, last = [line for line in metrics_log.read_lines(whole) if "loss" in line]
  assert {"training/error", "training/error_red"} <= last.keys()
  report.write([whole], tmp_path / "report.html", inside=False)
  assert "hidden channel" in (tmp_path / "report.html").read_text()
  config = recipes.resolve("configs/vit_digits.py", TOY)
  assert cost.cost(config, 10)["params"] == 16 * 16 * 3 * 3 + 3
  assert "config.objective with kind=hidden_channel" in page()


@pytest.mark.parametrize(
  ("word", "message"),
  [
    ("--config.loss.kind=sigmoid", r"no effect with config\.objective\.kind='hidden_channel'"),
    ("--config.new_head=true", r"give --config\.objective\.kind=classification, or leave"),
    ("--config.objective.rate=0.2", r"rate is a setting of another kind; .*kind=masked_patches"),
  ],
)
def test_what_has_no_effect_on_it_is_refused(tmp_path, word, message):
  with pytest.raises(ConfigError, match=message):
    program.run(tmp_path / "run", *TOY, word)
