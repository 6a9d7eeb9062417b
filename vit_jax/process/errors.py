"""Errors that end a command; each message says what was wrong, the value, and what to do."""


class ConfigError(ValueError):
  """A wrong setting or missing data; the message names the key, the value and what to do."""


class RunError(RuntimeError):
  """The run cannot go on, for a reason outside its config; the message says what to do."""


class Miscomputed(RunError):
  """A device computed wrongly, without an error of its own; nothing of the step was saved."""


class StorageError(RunError):
  """The run's folder cannot be written to; waiting for unfinished writes would be useless."""


class Stopped(RunError):
  """A signal stopped the run; the work done so far is kept."""
