"""Logs a run to MLflow: --config.mlflow=EXPERIMENT."""

import io
import re
import time

from PIL import Image

from vit_jax.extras.loggers import logger

STATUS = {logger.FINISHED: "FINISHED", logger.STOPPED: "KILLED", logger.FAILED: "FAILED"}
MAX_PARAMETERS = 100  # of one request


class MLflow(logger.Logger):
  """A run of MLflow. Its parameters stay as they were; those of later starts become tags."""

  library = "mlflow"
  title = "MLflow"

  def open_run(self, project, known, name, settings):
    """Opens the run."""
    import mlflow

    self._entities = mlflow.entities
    self._client = mlflow.MlflowClient()
    self._id = known
    settings = {key_of(key): str(value) for key, value in settings.items()}
    if known:
      self._client.update_run(known, status="RUNNING")
      self._tag_changes(settings)
    else:
      experiment = self._experiment(project)
      self._id = self._client.create_run(experiment, run_name=name).info.run_id
      self._log_parameters(settings)
    return self._id, f"run {self._id} at {mlflow.get_tracking_uri()}"

  def log_metrics(self, step, metrics):
    """Logs a line in one request."""
    now = round(time.time() * 1000)
    values = [
      self._entities.Metric(key_of(name), float(value), now, step)
      for name, value in metrics.items()
    ]
    self._client.log_batch(self._id, metrics=values)

  def log_picture(self, step, name, png):
    """Logs a picture as an artifact."""
    file = f"pictures/{name}/{step:08d}.png"
    self._client.log_image(self._id, Image.open(io.BytesIO(png)), artifact_file=file)

  def log_paths(self, step, paths):
    """Logs paths as tags."""
    for name, path in paths.items():
      self._client.set_tag(self._id, name, path)

  def finish(self, status):
    """Ends the run."""
    self._client.set_terminated(self._id, status=STATUS[status])

  def _experiment(self, name) -> str:
    found = self._client.get_experiment_by_name(name)
    if found:
      return found.experiment_id
    return self._client.create_experiment(name)

  def _log_parameters(self, settings):
    parameters = [self._entities.Param(key, value) for key, value in settings.items()]
    for first in range(0, len(parameters), MAX_PARAMETERS):
      self._client.log_batch(self._id, params=parameters[first : first + MAX_PARAMETERS])

  def _tag_changes(self, settings):
    begun = self._client.get_run(self._id).data.params
    for key, value in settings.items():
      if begun.get(key) != value:
        self._client.set_tag(self._id, f"changed.{key}", value)


def key_of(name: str) -> str:
  """A name with the characters that MLflow allows."""
  return re.sub(r"[^\w./: -]", "_", name)
