"""The script that submits a study to SLURM."""

import os
import pathlib
import shlex

from vit_jax.config import ConfigError
from vit_jax.extras.experiments.studies.jobs import Job
from vit_jax.process.text import one_line, quoted
from vit_jax.storage import files

HEAD = """\
#!/bin/bash
# Submits the runs of a study: bash {file} [options of sbatch, such as --gres=gpu:1 --time=4:00:00]
# The jobs of an array do not need one another; an array starts when the one before it has ended.
# The last job does what is left, such as runs that failed, and writes the results.
set -euo pipefail
cd {root}
study={command}
"""
ARRAY = """\
wave{number}=$(sbatch --parsable --job-name=study-{number} --array=0-{last}{after} "$@" \\
  --wrap="$study --only={number}:\\$SLURM_ARRAY_TASK_ID")
"""
REPORT = 'sbatch --job-name=study-report{after} "$@" --wrap="$study"\n'


def write(file: pathlib.Path, command: list[str], waves: list[list[Job]]):
  """Writes the script that submits a study, and says how to submit it; arguments as of `script`.

  Raises:
    ConfigError: it cannot be written.
  """
  try:
    files.write_text(file, script(command, file, waves))
  except OSError as error:
    raise ConfigError(f"--slurm={file} cannot be written: {error.strerror}.") from error
  print(f"Written to {one_line(str(file))}; submit it with `bash {quoted(file)}`.")


def script(command: list[str], file: pathlib.Path, waves: list[list[Job]]) -> str:
  """The script that submits a study.

  Args:
    command: runs the study without --slurm.
    file: where the script will lie.
    waves: the jobs, as `jobs.waves`.
  """
  root = shlex.quote(os.getcwd())
  line = shlex.quote(shlex.join(command))
  text = HEAD.format(file=quoted(file), root=root, command=line)
  for number, wave in enumerate(waves):
    text += ARRAY.format(number=number, last=len(wave) - 1, after=after(number))
  return text + REPORT.format(after=after(len(waves)))


def after(number: int) -> str:
  """The option that waits for the previous wave, even if some of its runs failed."""
  if number == 0:
    return ""
  return f' --dependency="afterany:${{wave{number - 1}%%;*}}"'
