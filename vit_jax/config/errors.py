"""What a command leaves with: one sentence on what was wrong, its value, and what to do."""


class ConfigError(ValueError):
  """A wrong setting or missing data; the message names the key, the value and what to do."""


class RunError(RuntimeError):
  """A run that cannot go on, for a reason outside its config; the message says what to do."""


class StorageError(RunError):
  """The run's folder cannot be written to; no use waiting for what is still being written."""


class Stopped(RunError):
  """A signal stopped the run under way; what is done is kept."""
