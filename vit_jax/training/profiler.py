"""A trace of a window of steps, for TensorBoard's profiler."""

import dataclasses
import pathlib
from collections.abc import Callable

import jax

from vit_jax.config import Profile


@dataclasses.dataclass(frozen=True)
class Profiler:
  """Starts and ends the trace; steps are counted from the first step of this process.

  Attributes:
    settings: the window.
    folder: where the trace is written.
    say: shows a line to the user.
  """

  settings: Profile
  folder: pathlib.Path
  say: Callable[[str], None]

  def before(self, step: int):
    """Starts the trace if the window begins with `step`; ends it if `step` comes after it."""
    first, count = self.settings.first_step, self.settings.steps
    if count and step == first:
      jax.profiler.start_trace(self.folder)
    if step == first + count:
      self.end(step - 1)

  def end(self, step: int):
    """Ends the trace after `step`, if one is under way."""
    first, count = self.settings.first_step, self.settings.steps
    if count and step < first:
      self.say(
        f"No profile: config.profile.first_step={first} was not reached; give a smaller one."
      )
    if first <= step < first + count:
      jax.profiler.stop_trace()
      self.say(f"Profile of {step - first + 1} steps: {self.folder}")
