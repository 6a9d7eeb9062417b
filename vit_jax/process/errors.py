"""Errors that end a command; each message says what was wrong, the value, and what to do."""


class ConfigError(ValueError):
  """A wrong setting or missing data; the message names the key, the value and what to do."""


class RunError(RuntimeError):
  """The run cannot go on, for a reason outside its config; the message says what to do."""


class Miscomputed(RunError):
  """A device computed wrongly, without an error of its own; nothing of the step was saved."""


class StorageError(RunError):
  """The run's folder cannot be written to; waiting for unfinished writes would be useless."""


class NotFinite(ValueError):
  """The model's outputs are not finite, so what follows from them would be meaningless."""


def check_finite(wrong: float, images: float, what: str):
  """Raises NotFinite if some of the images have outputs (`what`) that are not finite."""
  if wrong:
    raise NotFinite(
      f"{what} of {int(wrong):,} of {int(images):,} images are not finite numbers; the weights are "
      "damaged or have diverged, so take others, such as an earlier checkpoint."
    )


class Stopped(RunError):
  """A signal stopped the run; the work done so far is kept."""
