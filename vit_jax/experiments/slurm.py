"""The script that submits a sweep to SLURM."""

import os
import pathlib
import shlex
import sys

from vit_jax.experiments.sweep import Sweep

SCRIPT = """\
#!/bin/bash
# Submits the runs of a sweep: bash {file} [options of sbatch, such as --gres=gpu:1 --time=4:00:00]
# Each job of the first array trains with one learning rate. When all are done, each job of the
# second array picks the best rate (the same in all) and trains one seed. The last job reports.
set -euo pipefail
cd {root}
sweep={command}
grid=$(sbatch --parsable --job-name=sweep-grid --array=0-{last_rate} "$@" \\
  --wrap="$sweep --only=development:\\$SLURM_ARRAY_TASK_ID")
final=$(sbatch --parsable --job-name=sweep-final --array=0-{last_seed} "$@" \\
  --dependency="afterok:${{grid%%;*}}" --wrap="$sweep --only=final:\\$SLURM_ARRAY_TASK_ID")
sbatch --job-name=sweep-report "$@" --dependency="afterok:${{final%%;*}}" --wrap="$sweep"
"""


def script(chosen: Sweep, file: pathlib.Path, tool: pathlib.Path) -> str:
  """The script that submits a sweep.

  Args:
    chosen: the sweep.
    file: where the script will lie.
    tool: the program that its jobs run, tools/sweep.py.
  """
  command = [
    sys.executable,
    str(tool),
    f"--development={chosen.development}",
    f"--final={chosen.final}",
    f"--learning-rates={','.join(map(str, chosen.learning_rates))}",
    f"--seeds={chosen.seeds}",
    f"--workdir={chosen.folder}",
    *chosen.overrides,
  ]
  return SCRIPT.format(
    file=file,
    root=shlex.quote(os.getcwd()),
    command=shlex.quote(shlex.join(command)),
    last_rate=len(chosen.learning_rates) - 1,
    last_seed=chosen.seeds - 1,
  )
