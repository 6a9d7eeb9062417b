"""Logs a run to Weights & Biases: --config.wandb=PROJECT."""

import io
import secrets

from PIL import Image

from vit_jax.config import RunError
from vit_jax.extras.loggers import logger


class WandB(logger.Logger):
  """A run of Weights & Biases.

  Its axis is the metric "step". W&B's own count of steps cannot go back, so it would drop an
  evaluation that a resumed run makes of a step it has logged already.
  """

  library = "wandb"
  title = "Weights & Biases"

  def open_run(self, project, known, name, settings):
    """Opens the run; offline, each start writes a folder, and `wandb sync` joins them."""
    import wandb

    if wandb.setup().settings.mode == "online" and not wandb.login(prompt=False):
      raise RunError("there is no key: run wandb login, or set WANDB_API_KEY or WANDB_MODE=offline")
    own = wandb.Settings(
      reinit="create_new",  # the program may have an active run, which stays as it is
      silent=True,
      console="off",
      finish_timeout=logger.PATIENCE / 2,
      finish_timeout_raises=True,
    )
    run = known or secrets.token_hex(8)
    self._opened = wandb.init(project=project, id=run, name=name, resume="allow", settings=own)
    self._opened.config.update(settings, allow_val_change=True)
    self._opened.define_metric("step")
    self._opened.define_metric("*", step_metric="step")
    self._image = wandb.Image
    place = self._opened.dir if self._opened.offline else self._opened.url
    return self._opened.id, place  # a sweep gives its own

  def log_metrics(self, step, metrics):
    """Logs a row."""
    self._opened.log({"step": step, **metrics})

  def log_picture(self, step, name, png):
    """Logs a row with a picture."""
    self._opened.log({"step": step, name: self._image(Image.open(io.BytesIO(png)))})

  def log_paths(self, step, paths):
    """Logs paths to the summary."""
    self._opened.summary.update(paths)

  def finish(self, status):
    """Uploads what is left."""
    self._opened.finish(exit_code=int(status == logger.FAILED))
