"""How to repeat runs: commands, seed, versions, revision, devices."""

import pathlib
from collections.abc import Iterator, Mapping, Sequence

from vit_jax.extras.report.document import Section, TableCell, count
from vit_jax.extras.report.run import RecordedRun, side_by_side
from vit_jax.process import program
from vit_jax.process.text import command

PROGRAM = ("python", "-m", "vit_jax.main")
FIRST = ("vit_jax", "jax", "python")  # versions that readers look for
SCRIPT = "vit-jax"
NOTEBOOKS = {"ipykernel_launcher", "colab_kernel_launcher"}  # modules that Jupyter and Colab start


def section(runs: Sequence[RecordedRun]) -> Section:
  """The box with everything that is needed to repeat these runs."""
  commands = ["\n".join(commands_of(run)) for run in runs]
  return Section(
    "Reproduce",
    commands=list(dict.fromkeys(filter(None, commands))),
    tables=[side_by_side("Code and machine", runs, facts)],
    boxed=True,
  )


def commands_of(run: RecordedRun) -> list[str]:
  """The command of each start, and the step that it resumed after; equal ones appear once."""
  lines = []
  last = ""
  for start in run.starts:
    text = in_words(start)
    if text and text != last:
      if lines:
        lines.append(f"# from step {start.get('step')!r:.20} on")
      lines.append(text)
      last = text
  return lines


def in_words(start: Mapping) -> str:
  """The command of a start for a shell, with the variables that change numbers; "": not known."""
  words = typed(start)
  known = start.get("variables")
  if not words or not isinstance(known, dict):
    return command(words)
  given = program.deciding({str(key): str(value) for key, value in known.items()})
  settings = [f"{key}={value}" for key, value in given.items()]
  return command([*["env"] * bool(settings), *settings, *words])


def typed(start: Mapping) -> list[str]:
  """The words of the command; older records have its arguments alone. Notebooks have none."""
  match start.get("typed"):
    case [*words] if not NOTEBOOKS.isdisjoint(map(str, words)):
      return []
    case [_, script, *arguments] if pathlib.PurePath(str(script)).name == SCRIPT:
      return [SCRIPT, *map(str, arguments)]
    case [_, *arguments] if arguments:
      return ["python", *map(str, arguments)]
  match start.get("command"):
    case [_, *arguments]:
      return [*PROGRAM, *map(str, arguments)]
  return []


def facts(run: RecordedRun) -> Iterator[tuple[str, TableCell | str]]:
  """Seed, versions, revision, devices and times."""
  if run.config is not None:
    yield "Seed", count(run.config.seed)
  versions = run.fact("versions", dict) or {}
  for name in FIRST:
    yield {"jax": "JAX", "python": "Python"}.get(name, name), str(versions.get(name, ""))
  yield "Git revision", run.fact("revision", str) or ""
  others = [f"{name} {version}" for name, version in versions.items() if name not in FIRST]
  yield "Other libraries", ", ".join(others)
  number = run.fact("devices", int)
  kind = run.fact("device_kind", str)
  if number and kind:
    devices = f"{number:,} x {kind}"
    hosts = run.fact("hosts", int) or 1
    if hosts > 1:
      devices += f" on {hosts:,} hosts"
    yield "Devices", devices
  yield "System", run.fact("platform", str) or ""
  yield "Started", ", ".join(str(start.get("time", "")) for start in run.starts[:1])
  if len(run.starts) > 1:
    yield "Starts", count(len(run.starts))
