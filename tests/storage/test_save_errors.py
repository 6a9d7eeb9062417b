"""What orbax leaves behind after a failed save is ended quietly; other errors are shown."""

import pytest

from vit_jax.storage.save_errors import SaveErrors

SOURCE = """
async def write():
  try:
    await forever()
  finally:
    raise ImportError("Python is likely shutting down")
"""


class Forever:
  """Is never done."""

  def __await__(self):
    yield


def given_up(file):
  """A coroutine of a file that waits in a circle of references, so that only gc ends it."""
  names = {"forever": Forever}
  exec(compile(SOURCE, file, "exec"), names)
  coroutine = names["write"]()
  coroutine.send(None)
  circle = [coroutine]
  circle.append(circle)


@pytest.fixture
def errors():
  made = SaveErrors()
  yield made
  made.close()


@pytest.mark.parametrize(("file", "lines"), [("/lib/orbax/write.py", 0), ("/lib/other.py", 1)])
def test_only_the_coroutines_of_orbax_end_quietly(errors, capfd, monkeypatch, file, lines):
  monkeypatch.setattr(errors, "_hook", lambda event: print(event.exc_value))
  given_up(file)
  errors.end_what_was_given_up()
  assert len(capfd.readouterr().out.splitlines()) == lines
