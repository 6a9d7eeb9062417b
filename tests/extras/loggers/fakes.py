"""Libraries that keep runs in memory, as far as vit_jax calls the real ones."""

import dataclasses
import importlib.machinery
import types
import uuid


@dataclasses.dataclass
class Seen:
  """A run as a library shows it."""

  settings: dict = dataclasses.field(default_factory=dict)
  lines: list = dataclasses.field(default_factory=list)  # (step, metrics)
  pictures: set = dataclasses.field(default_factory=set)  # (step, name)
  paths: dict = dataclasses.field(default_factory=dict)
  status: str = ""


def module(name, **contents):
  made = types.ModuleType(name)
  made.__spec__ = importlib.machinery.ModuleSpec(name, None, origin="a test")
  vars(made).update(contents)
  return made


class Library:
  """A fake library: the module, and the runs in it by project and identifier."""

  def __init__(self, name):
    self.runs = {}
    self.module = getattr(self, name)()

  def of(self, project, run):
    return self.runs.setdefault((project, run), Seen())

  def add(self, seen, step, values):
    """A row of numbers, texts and pictures, as W&B and Trackio take it."""
    seen.pictures |= {(step, name) for name, value in values.items() if isinstance(value, Picture)}
    seen.paths |= {name: value for name, value in values.items() if isinstance(value, str)}
    metrics = {name: value for name, value in values.items() if isinstance(value, int | float)}
    if metrics:
      seen.lines.append((step, metrics))

  def wandb(self):
    def init(*, project, id, name, resume, settings):
      assert resume == "allow"
      return WandBRun(self, self.of(project, id), id)

    mode = types.SimpleNamespace(settings=types.SimpleNamespace(mode="offline"))
    return module("wandb", init=init, Image=Picture, Settings=dict, setup=lambda: mode)

  def trackio(self):
    def init(project, *, name, config, resume, embed):
      assert resume == "allow"
      seen = self.of(project, name)
      seen.settings = config
      return types.SimpleNamespace(
        log=lambda values, step: self.add(seen, step, values),
        finish=lambda: setattr(seen, "status", "finished"),
      )

    return module("trackio", init=init, Image=Picture)

  def mlflow(self):
    entities = types.SimpleNamespace(
      Metric=lambda key, value, timestamp, step: (step, key, value), Param=lambda *pair: pair
    )
    return module(
      "mlflow",
      MlflowClient=lambda: MlflowClient(self),
      entities=entities,
      get_tracking_uri=lambda: "memory",
    )


class Picture:
  def __init__(self, image):
    image.verify()


class WandBRun:
  offline = True
  dir = "wandb"

  def __init__(self, library, seen, id):
    self.library = library
    self.seen = seen
    self.id = id
    self.config = types.SimpleNamespace(update=self.update)
    self.summary = seen.paths

  def update(self, settings, *, allow_val_change):
    self.seen.settings |= settings

  def define_metric(self, *names, **options):
    """Only for charts."""

  def log(self, values):
    self.library.add(self.seen, values.pop("step"), values)

  def finish(self, *, exit_code):
    self.seen.status = "failed" if exit_code else "finished"


class MlflowClient:
  def __init__(self, library):
    self.library = library

  def get_experiment_by_name(self, name):
    known = any(project == name for project, _ in self.library.runs)
    return types.SimpleNamespace(experiment_id=name) if known else None

  def create_experiment(self, name):
    return name

  def create_run(self, experiment, *, run_name):
    run = uuid.uuid4().hex
    self.library.of(experiment, run)
    return types.SimpleNamespace(info=types.SimpleNamespace(run_id=run))

  def get_run(self, run):
    return types.SimpleNamespace(data=types.SimpleNamespace(params=self.seen(run).settings))

  def seen(self, run):
    (found,) = [seen for (_, each), seen in self.library.runs.items() if each == run]
    return found

  def log_batch(self, run, *, metrics=(), params=()):
    assert len(params) <= 100
    seen = self.seen(run)
    assert not seen.settings.keys() & dict(params)  # they cannot be changed
    seen.settings |= dict(params)
    if metrics:
      seen.lines.append((metrics[0][0], {key: value for _, key, value in metrics}))

  def log_image(self, run, image, *, artifact_file):
    image.verify()
    _, *name, step = artifact_file.removesuffix(".png").split("/")
    self.seen(run).pictures.add((int(step), "/".join(name)))

  def set_tag(self, run, key, value):
    self.seen(run).paths[key] = value

  def update_run(self, run, *, status):
    self.seen(run).status = status.lower()

  def set_terminated(self, run, *, status):
    self.seen(run).status = status.lower()
