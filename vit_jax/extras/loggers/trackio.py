"""Logs a run to Trackio: --config.trackio=PROJECT."""

import io
import secrets

from PIL import Image

from vit_jax.extras.loggers import logger


class Trackio(logger.Logger):
  """A run of Trackio, which knows it by its name."""

  library = "trackio"
  title = "Trackio"

  def open_run(self, project, known, name, settings):
    """Opens the run."""
    import trackio

    run = known or f"{name}-{secrets.token_hex(4)}"
    self._opened = trackio.init(project, name=run, config=settings, resume="allow", embed=False)
    self._image = trackio.Image
    return run, f"run {run} of project {project}"

  def log_metrics(self, step, metrics):
    """Logs a line."""
    self._opened.log(dict(metrics), step=step)

  def log_picture(self, step, name, png):
    """Logs a picture."""
    self._opened.log({name: self._image(Image.open(io.BytesIO(png)))}, step=step)

  def log_paths(self, step, paths):
    """Logs paths as texts."""
    self._opened.log(dict(paths), step=step)

  def finish(self, status):
    """Writes what is left."""
    self._opened.finish()
