"""The halves that are written, the flags of the runs, and means and deviations against NumPy."""

import json
import pathlib

import numpy as np
import pytest
from PIL import Image

from vit_jax import config, recipes
from vit_jax.data.sources import Example, open_source
from vit_jax.experiments import fashion_halves, fashion_report, fashion_transfer
from vit_jax.training import checks

SIZE = fashion_halves.FAST


class Source:
  """Grey images whose pixels tell the position; classes in turn."""

  def __len__(self):
    return 40

  def __getitem__(self, index):
    return Example(np.full((4, 4, 1), index, np.uint8), (index % 10,), "")


def test_a_half_holds_the_first_images_of_its_classes_exactly(tmp_path):
  fashion_halves.write_half(Source(), tmp_path / "half", range(5, 10), 3)
  written = open_source(f"folder:{tmp_path / 'half'}", split="", num_classes=5)
  assert written.class_names == tuple("56789")
  assert len(written) == 15
  for label in range(5, 10):
    for number in range(3):
      with Image.open(tmp_path / "half" / str(label) / f"{number:05d}.png") as image:
        assert (np.asarray(image) == label + 10 * number).all()


def test_a_half_that_is_there_is_left(tmp_path):
  (tmp_path / "half").mkdir()
  fashion_halves.write_half(Source(), tmp_path / "half", range(5), 3)
  assert not list((tmp_path / "half").iterdir())


def runs(folder):
  yield fashion_transfer.pretraining(folder, 0, SIZE)
  for start in fashion_transfer.STARTS:
    for side in fashion_transfer.SIDES:
      yield fashion_transfer.transfer(folder, start, side, 0, SIZE)


def test_the_runs_differ_in_nothing_but_what_is_compared():
  """Their settings as the command line makes them, checked as a run checks them."""
  sides, rates = set(), set()
  for flags in runs(pathlib.Path("w")):
    given = dict(flag.removeprefix("--").split("=", 1) for flag in flags)
    values = config.to_dict(recipes.load(str(fashion_transfer.ROOT / given.pop("config"))))
    given.pop("workdir")
    for key, value in given.items():
      *path, last = key.split(".")[1:]
      node = values
      for part in path:
        node = node[part]
      kind = type(node[last])
      node[last] = {bool: lambda text: text == "True", tuple: lambda _: (1.0, 1.0)}.get(kind, kind)(
        value
      )
    overridden = [key.removeprefix("config.") for key in given]
    resolved = config.from_dict(config.replace_units(values, overridden))
    checks.check(resolved)
    assert (resolved.batch_size, resolved.model.width, resolved.model.num_classes) == (64, 96, 5)
    assert resolved.data.train != resolved.data.evaluate["test"]
    sides.add(resolved.data.image_size)
    rates.add((resolved.optimizer.kind, resolved.optimizer.ema))
  assert sides == {28, 56}
  assert rates == {("adam", 0.998), ("adam", 0.98), ("sgd", 0.98)}


def test_what_was_measured_is_not_measured_again_and_never_with_other_flags(tmp_path, monkeypatch):
  flags = next(runs(tmp_path))
  workdir = fashion_transfer.run_folder(tmp_path, "pretraining", 0)
  workdir.mkdir(parents=True)
  calls = []

  def run(flags):
    calls.append(flags)
    (workdir / "metrics.jsonl").write_text('{"step": 3, "test/top1": 0.75}\n')
    (workdir / "evaluation.json").write_text('{"step": 3, "test/top1": 0.5}\n')

  monkeypatch.setattr(fashion_transfer, "run", run)
  for _ in range(2):
    assert fashion_transfer.measured(flags) == {"average": 0.75, "last": 0.5}
  assert len(calls) == 2
  assert calls[0] == flags
  assert calls[1] == [*flags, "--mode=evaluate", "--config.evaluate_average=False"]
  with pytest.raises(config.ConfigError, match="measured with other flags; use another --workdir"):
    fashion_transfer.measured([*flags, "--config.accumulation=2"])


def test_means_and_deviations(tmp_path):
  rng = np.random.default_rng(0)
  figures = {
    (start, side, parameters): rng.random(3)
    for start in ("pretraining", *fashion_transfer.STARTS)
    for side in fashion_transfer.SIDES
    for parameters in fashion_transfer.PARAMETERS
  }
  rows = [
    dict(start=start, side=side, seed=seed, parameters=parameters, top1=float(values[seed]))
    for seed in range(3)
    for (start, side, parameters), values in figures.items()
  ]
  lines = fashion_report.summary(rows)
  assert len(lines) == len(figures)
  for line in lines:
    values = figures[line["start"], line["side"], line["parameters"]]
    np.testing.assert_allclose(line["mean"], values.mean())
    np.testing.assert_allclose(line["deviation"], values.std(ddof=1))
    assert line["seeds"] == 3
  fashion_report.write(rows, tmp_path, SIZE)
  text = (tmp_path / "transfer.md").read_text()
  for start in fashion_transfer.STARTS:
    for parameters in fashion_transfer.PARAMETERS:
      cells = [figures[start, side, parameters] for side in fashion_transfer.SIDES]
      shown = " | ".join(f"{x.mean():.2%} ± {x.std(ddof=1):.2%}" for x in cells)
      assert shown in text
  assert len((tmp_path / "transfer.csv").read_text().splitlines()) == 1 + len(rows)
  assert json.loads(json.dumps(lines)) == lines
