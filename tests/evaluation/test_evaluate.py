"""Whole suites on made-up miniatures, against metrics computed image by image."""

import csv
import dataclasses
import functools
import io
import itertools
import json
import socket

import jax
import numpy as np
import pytest
import tensorflow_datasets as tfds
from sklearn import metrics as sk

from tests import programs, resolved
from tests.evaluation.miniatures import (
  MODEL,
  SIDE,
  Miniatures,
  evaluated,
  parameters,
  seen,
  several_or_none,
)
from vit_jax import config as c
from vit_jax import recipes, weights
from vit_jax.data import images, sources
from vit_jax.data.classes import imagenet_classes
from vit_jax.devices import watchdog
from vit_jax.evaluation import catalogue, classification, evaluate, evaluated_model, results
from vit_jax.evaluation import features as seen_features
from vit_jax.evaluation.classification import Classification
from vit_jax.evaluation.evaluations import Evaluations, open_alone, score_all
from vit_jax.evaluation.few_shot import FewShot
from vit_jax.evaluation.nearest_neighbours import Nearest
from vit_jax.evaluation.spec import EvalContext, EvaluationInterrupted
from vit_jax.launch import reader_of
from vit_jax.process.progress import Line, Progress
from vit_jax.training.facts import of_devices
from vit_jax.weights.card import Card


def in_turn(logits):
  """A label for each image: the first prediction, the third, the last, ..."""
  order = np.argsort(-logits, axis=1)
  return [int(order[i, (0, 2, -1)[i % 3]]) for i in range(len(order))]


def different(logits, count):
  """A label for each image, out of `count` classes: the best-ranked class that is still left.

  The first prediction among all classes is mostly none of them.
  """
  left = [int(k) for k in np.random.default_rng(2).permutation(logits.shape[1])[:count]]
  labels = []
  for row in logits[:count]:
    labels.append(max(left, key=lambda k: row[k]))
    left.remove(labels[-1])
  return labels + labels[: len(logits) - count]


@pytest.fixture(scope="module")
def variants(tmp_path_factory):
  """The suite `variants` on miniatures: its metrics, those expected, the folder and labels."""
  root = tmp_path_factory.mktemp("variants")
  module, params = parameters(1000)
  weights.write(root / "w.npz", weights.Weights(params, Card(image_size=SIDE)))
  made = Miniatures(root, module, params)
  made.add("imagenet", "imagenet2012", "validation", 11, in_turn)
  several = dict(real_label=tfds.features.Sequence(made.label), original_label=made.label)
  real = dict(key="real_label", **several)
  made.add("real", "imagenet2012_real", "validation", 14, several_or_none, **real)
  made.add("v2", "imagenet_v2/matched-frequency", "test", 9, in_turn)
  made.add("sketch", "imagenet_sketch", "test", 7, in_turn, image=tfds.features.Image())
  for name in ("a", "r"):
    count = functools.partial(different, count=200)
    made.add(name, f"imagenet_{name}", "test", 203, count, among=True)
  made.add_objectnet(root / "objectnet")

  config = recipes.evaluation("variants", "ViT-Ti/16")
  sets = dict(config.evaluate)
  sets["objectnet"] = Classification(f"objectnet:{root / 'objectnet'}", resize=512 / 480)
  config = dataclasses.replace(
    config,
    init_from=str(root / "w.npz"),
    batch_size=16,
    model=MODEL,
    data=dataclasses.replace(config.data, image_size=SIDE),
    evaluate=sets,
  )
  with pytest.MonkeyPatch.context() as patch:
    patch.setenv("TFDS_DATA_DIR", str(root))
    patch.setattr(results, "MAX_CLASSES", 999)  # five pictures take seconds
    return evaluated(config, root / "run"), made.expected, root / "run", made.labels


@pytest.mark.parametrize("name", ["imagenet", "real", "v2", "a", "r", "sketch", "objectnet"])
def test_metrics_of_imagenets_variants(variants, name):
  metrics, expected, *_ = variants
  top1, top5, count = expected[name]
  assert metrics[f"{name}/examples"] == count
  assert metrics[f"{name}/top1"] == pytest.approx(top1, abs=1e-12)
  assert metrics[f"{name}/top5"] == pytest.approx(top5, abs=1e-12)
  assert 0 < top1 < top5
  assert ("ece" in {key.rpartition("/")[2] for key in metrics if key.startswith(f"{name}/")}) == (
    name not in ("real", "objectnet")
  )


def test_files_of_an_evaluation(variants):
  metrics, _, folder, labels = variants
  result = json.loads((folder / "evaluation.json").read_text())
  assert result.pop("weights").endswith("w.npz")
  assert not result.pop("average")
  assert result == metrics
  single = {"imagenet", "v2", "a", "r", "sketch"}
  assert {path.name for path in (folder / "evaluation/1").iterdir()} == single
  with (folder / "evaluation/1/a/predictions.csv").open(newline="") as file:
    rows = list(csv.DictReader(file))
  names = imagenet_classes()
  assert [row["label"] for row in rows] == [names[k] for k in labels["a"]]
  assert rows[5]["name"] == "tfds:imagenet_a/1.0.0 test example 5"
  right = np.mean([row["label"] == row["prediction"] for row in rows])
  assert right == pytest.approx(metrics["a/top1"])
  assert {row["prediction"] for row in rows} <= {names[k] for k in labels["a"]}


def test_of_real_only_images_with_a_label_count_for_a_sigmoid_too(tmp_path, monkeypatch):
  """Its raters agreed on no class of the others, so these may show any."""
  monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
  module, params = parameters(1000)
  path = tmp_path / "w.npz"
  weights.write(path, weights.Weights(params, Card(image_size=SIDE, loss="sigmoid")))
  made = Miniatures(tmp_path, module, params)
  known = {}

  def label_of(logits):
    known["logits"] = logits
    return several_or_none(logits)

  several = dict(real_label=tfds.features.Sequence(made.label), original_label=made.label)
  made.add("real", "imagenet2012_real", "validation", 14, label_of, key="real_label", **several)
  config = recipes.evaluation("real")
  config = dataclasses.replace(
    config,
    init_from=str(path),
    batch_size=8,
    data=dataclasses.replace(config.data, image_size=SIDE),
  )
  metrics = evaluated(config, tmp_path / "run")

  target = np.array([np.isin(range(1000), labels) for labels in made.labels["real"]])
  there = target.any(axis=1)
  assert there.sum() == 10
  logits, target = known["logits"][there].astype(np.float32), target[there]
  signs = np.where(target, -1.0, 1.0)
  occur = target.any(axis=0)
  top1, top5, count = made.expected["real"]
  assert metrics == pytest.approx(
    {
      "real/loss": np.logaddexp(0, signs * logits).sum(axis=1).mean(),
      "real/top1": top1,
      "real/top5": top5,
      "real/map": sk.average_precision_score(target[:, occur], logits[:, occur]),
      "real/examples": count,
    },
    rel=1e-5,
  )


PROBE = FewShot(c.Dataset("digits", "train"), c.Dataset("digits", "test"), shots=(1, 4), seeds=2)


@pytest.fixture(scope="module")
def features(tmp_path_factory):
  """A config with a probe and neighbours of the digits, and what they see.

  That is, for each representation, the features and labels by split; for the probe of squares of 9
  pixels without their border, for the neighbours of whole images.
  """
  root = tmp_path_factory.mktemp("features")
  module, params = parameters(1)
  weights.write(root / "w.npz", weights.Weights(params, Card(image_size=SIDE)))
  known = {name: {"probe": {}, "near": {}} for name in ("pre_logits", "patches")}
  for split, (use, resize) in itertools.product(("train", "test"), dict(probe=9, near=0).items()):
    source = sources.open_source("digits", split=split)
    how = dict(size=SIDE, resize=resize, squeeze=True, max_pixels=10**6)
    pixels = [images.evaluate_image(source[i].image, **how) for i in range(len(source))]
    labels = np.array([source[i].labels[0] for i in range(len(source))])
    for representation, found in seen(module, params, pixels)[1].items():
      known[representation][use][split] = found, labels
  config = resolved.evaluation(
    init_from=str(root / "w.npz"),
    batch_size=64,
    model=dataclasses.replace(MODEL, num_classes=7),
    data=c.Data(image_size=SIDE),
    evaluate={"digits": PROBE, "near": Nearest(PROBE.train, PROBE.test, neighbours=7)},
  )
  return config, known


def probed(known, k, seed):
  """The accuracy of one probe by the normal equations."""
  (x, y), (test, wanted) = known["train"], known["test"]
  order = np.random.default_rng(seed).permutation(len(y))
  rows = np.concatenate([order[y[order] == label][:k] for label in range(10)])
  x, y = x[rows], y[rows]
  mean, deviation = x.mean(0), x.std(0) + 1e-5
  extend = lambda z: np.hstack([(z - mean) / deviation, np.full((len(z), 1), 100.0)])
  a = extend(x)
  w = np.linalg.solve(
    a.T @ a + 1024 * np.eye(a.shape[1]), a.T @ np.where(y[:, None] == np.arange(10), 1.0, -1.0)
  )
  return np.mean((extend(test) @ w).argmax(1) == wanted)


def neighboured(known, k):
  """The accuracy of the nearest neighbours."""
  (x, y), (test, wanted) = ((f / np.linalg.norm(f, axis=1)[:, None], z) for f, z in known.values())
  votes = np.zeros((len(test), 10))
  for row, cosines in enumerate(test @ x.T):
    for place in np.argsort(-cosines)[:k]:
      votes[row, y[place]] += np.exp(cosines[place] / 0.07)
  return np.mean(votes.argmax(1) == wanted)


def expected_of(known):
  result = {"near/7nn": neighboured(known["near"], 7)}
  for k in PROBE.shots:
    values = [probed(known["probe"], k, seed) for seed in (0, 1)]
    result |= {f"digits/{k}shot": np.mean(values), f"digits/{k}shot_std": np.std(values)}
  return result


@pytest.mark.parametrize("representation", ["pre_logits", "patches"])
def test_few_shot_and_nearest_neighbours(features, representation, tmp_path, monkeypatch):
  config, known = features
  specs = {
    name: dataclasses.replace(spec, representation=representation)
    for name, spec in config.evaluate.items()
  }
  config = dataclasses.replace(config, evaluate=specs)
  beats = []
  monkeypatch.setattr(watchdog.Watchdog, "beat", lambda self, doing: beats.append(doing))
  metrics = evaluated(config, tmp_path)
  assert beats.count("the evaluation") > 360 // 64  # every batch: a stalled host is noticed
  expected = expected_of(known[representation])
  assert metrics == pytest.approx(expected, abs=1 / 360 + 1e-9)  # one image at a tie
  named = {name for name in metrics if not name.endswith("_std")}
  assert set(catalogue.names(config)) == named  # any of which may stop a run early
  assert 0.15 < metrics["digits/1shot"] < metrics["digits/4shot"] < 1
  said = catalogue.in_words(metrics)
  assert f"digits: 4-shot {metrics['digits/4shot']:.2%} +- " in said
  assert f"near: 7 nearest {metrics['near/7nn']:.2%}" in said


@pytest.mark.parametrize(("side", "said"), [(SIDE, ""), (16, "2 x 2 -> 4 x 4 patches")])
def test_weights_of_another_image_size_are_spoken_of(features, tmp_path, capsys, side, said):
  config, _ = features
  config = dataclasses.replace(config, data=c.Data(image_size=side), evaluate={"digits": PROBE})
  evaluated(config, tmp_path)
  text = capsys.readouterr().out
  assert said in text
  assert ("image_size=16" in text) == bool(said)
  assert (f"--config.data.image_size={SIDE}." in text) == bool(said)


def test_small_sets_are_scored_by_one_program(tmp_path, monkeypatch):
  """With the metrics of batches of their own size; eight devices compute eight rows each."""
  _, params = parameters(10)
  names = tuple(sources.open_source("digits", split="test").class_names)
  weights.write(tmp_path / "w.npz", weights.Weights(params, Card(SIDE, class_names=names)))
  config = resolved.evaluation(
    init_from=str(tmp_path / "w.npz"),
    batch_size=256,
    model=dataclasses.replace(MODEL, num_classes=10),
    data=c.Data(image_size=SIDE),
    evaluate={f"of_{n}": Classification("digits", "test", subset=n) for n in (60, 100, 120)},
  )
  rank = classification.rank_of_first  # traced once in a program
  compiled = []

  def traced(logits, target):
    compiled.append(len(logits))
    return rank(logits, target)

  monkeypatch.setattr(classification, "rank_of_first", traced)
  together = evaluated(config, tmp_path / "together")
  assert compiled == [128]
  monkeypatch.setattr(Evaluations, "sizes", ())
  apart = evaluated(config, tmp_path / "apart")
  assert 64 in compiled
  assert together == pytest.approx(apart, rel=1e-5)


@pytest.mark.parametrize("where", ["put", "counted"])
def test_too_little_memory_names_what_an_evaluation_can_do(features, tmp_path, monkeypatch, where):
  """An evaluation ignores settings of training, such as accumulation."""
  config, _ = features

  def full(*_, **__):
    raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.")

  module = evaluate if where == "put" else seen_features
  monkeypatch.setattr(module, where, full)
  with pytest.raises(c.RunError, match=r"ran out of memory .*Lower config\.batch_size") as caught:
    evaluated(config, tmp_path)
  for setting in ("accumulation", "remat"):
    assert setting not in str(caught.value)


def test_an_evaluation_that_is_stopped(features, tmp_path):
  """Stops at any place, as after a signal in the training loop."""
  config, _ = features
  opened = open_alone(config, ())
  read = evaluated_model.read_evaluated(config, opened, tmp_path, frozenset(), of_devices())
  reader = reader_of(read.settings, opened)
  params = evaluate.put(read, reader.mesh)
  stream, clock = io.StringIO(), itertools.count()
  stream.isatty = lambda: True
  progress = Progress(Line(stream), clock.__next__)
  context = EvalContext(read.model, read.settings.loss, reader, progress=progress)
  for calls in (0, 3, 12, 20):
    left = iter(range(calls))
    stopped = dataclasses.replace(context, stop=lambda left=left: next(left, None) is None)
    with pytest.raises(EvaluationInterrupted):
      score_all(opened.with_settings(read.settings), stopped, params)
  shown = [text.removesuffix("\x1b[K") for text in stream.getvalue().split("\r")[1:]]
  assert shown[0] == "digits.train: 80 images, compiling ..."
  begin = shown.index("digits.test: 360 images, compiling ...")  # once
  assert [text.split("  ")[0] for text in shown[begin + 1 : begin + 6]] == [
    f"digits.test: {done} of 360 images" for done in (64, 128, 192, 256, 320)
  ]
  assert shown[begin + 6].startswith("near.train: ")  # 360 were not known to be done


def test_two_processes_give_the_metrics_of_one(features, tmp_path):
  """The whole program: probes from weights, without training data, on two hosts."""
  config, known = features
  with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
  shape = ("name", "depth", "width", "mlp_dim", "heads")
  settings = {f"model.{key}": getattr(MODEL, key) for key in shape}
  settings |= {"batch_size": 64, "data.image_size": SIDE, "init_from": config.init_from}
  probe = {"train.source": "digits", "test.source": "digits", "test.split": "test"}
  probe |= {"shots": "(1,4)", "seeds": 2}
  settings |= {f"evaluate.imagenet.{key}": value for key, value in probe.items()}
  command = [
    *(*programs.MAIN, "--mode=evaluate", "--config=configs/evaluate.py:few_shot"),
    *(f"--config.{key}={value}" for key, value in settings.items()),
    *(f"--workdir={tmp_path}/run", f"--coordinator=127.0.0.1:{port}", "--processes=2"),
  ]
  running = [programs.start([*command, f"--process={i}"], devices=2) for i in range(2)]
  said = [process.finish(timeout=240) for process in running]
  assert [process.returncode for process in running] == [0, 0], said[0][-3000:]
  metrics = json.loads((tmp_path / "run/evaluation.json").read_text())
  for key, value in expected_of(known["pre_logits"]).items():
    if "shot" in key:
      found = metrics[key.replace("digits", "imagenet")]
      assert found == pytest.approx(value, abs=1 / 360 + 1e-9)
  assert "imagenet: 4-shot" in said[0]
  assert "shot" not in said[1]
