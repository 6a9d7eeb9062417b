"""What a sweep may do beside its grid: score further sets, and try a rule that needs no search."""

import json

import numpy as np
import pytest

from tests.experiments.test_sweep import finished, small
from vit_jax import config as c
from vit_jax.experiments import sweep


def test_further_sets_of_the_final_runs_have_their_mean_and_deviation(tmp_path):
  """As ReaL beside ImageNet's own labels, in whatever order they were scored."""
  some = small(tmp_path, seeds=3)
  for run in sweep.grid(some):
    finished(run, 0.5)
  scores = {"real": (0.75, 0.875, 0.8125), "test": (0.5, 0.53125, 0.6875)}
  for seed, run in enumerate(sweep.finals(some, 0.01)):
    finished(run, scores["real"][seed], "real")
    figures = json.dumps({"step": 5} | {f"{k}/top1": v[seed] for k, v in scores.items()})
    first = (run.folder / "metrics.jsonl").read_text().splitlines()[0]
    (run.folder / "metrics.jsonl").write_text(f"{first}\n{figures}\n")
  found = sweep.report(some)
  assert tuple(row["top1"] for row in found["test"]) == scores["test"]
  assert found["mean"] == pytest.approx(np.mean(scores["test"]))
  assert found["others"] == {
    "real": dict(
      mean=pytest.approx(np.mean(scores["real"])), std=pytest.approx(np.std(scores["real"], ddof=1))
    )
  }
  assert sweep.table(found).endswith("mean, real                81.25%  ± 6.25%")
  sweep.claim(some)
  sweep.write(some, found)
  assert "real, mean,0.01,,0.8125," in (some.folder / "sweep.csv").read_text().replace('"', "")


@pytest.mark.parametrize(("of_rule", "best"), [(0.75, "hyperrule"), (0.5, 0.01)])
def test_a_rule_is_chosen_where_it_is_better_on_the_development_part(tmp_path, of_rule, best):
  rule = ("rule.py:part", "rule.py:all")
  some = small(tmp_path, rule=rule, overrides=("--config.batch_size=4",))
  *rates, last = sweep.grid(some)
  for run in rates:
    finished(run, 0.5)
  with pytest.raises(c.ConfigError, match="hyperrule are not done"):
    sweep.chosen(some)
  assert (last.recipe, last.overrides) == (rule[0], ("--config.batch_size=4", "--config.seed=0"))
  assert sweep.picked(some, "development:2") == last
  finished(last, of_rule)
  assert sweep.chosen(some) == best
  tested = sweep.finals(some, best)
  assert {run.recipe for run in tested} == {rule[1] if best == "hyperrule" else some.final}
  given = [any("learning_rate" in flag for flag in run.overrides) for run in tested]
  assert given == [best != "hyperrule"] * 2
  for run in tested:
    finished(run, 0.25)
  found = sweep.report(some)
  assert [row["learning_rate"] for row in found["development"]] == [0.3, 0.01, "hyperrule"]
  assert ("BiT-HyperRule             75.00%  chosen" in sweep.table(found)) == (of_rule == 0.75)
  sweep.claim(some)
  sweep.write(some, found)
  assert (some.folder / "sweep.png").exists()
