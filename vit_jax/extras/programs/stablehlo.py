"""Programs in StableHLO, for every batch size and for CPUs, NVIDIA GPUs and TPUs.

`jax.export.deserialize` reads such a file. Its description is FILE.json beside it.
"""

import json

import jax
import jax.export
import numpy as np

from vit_jax.config import ConfigError
from vit_jax.extras.programs.program import MOST, Program, ProgramFormat
from vit_jax.storage import files
from vit_jax.storage.paths import Path
from vit_jax.weights.card import path_beside

PLATFORMS = ("cpu", "cuda", "tpu")


def _check():
  try:
    import flatbuffers  # noqa: F401  jax.export writes and reads files with it
  except ImportError as error:
    raise ConfigError(
      f"Programs in StableHLO need the library flatbuffers: pip install '.[programs]' ({error})."
    ) from error


def _save(path: Path, program: Program):
  exported = jax.export.export(jax.jit(program.function), platforms=PLATFORMS)(program.input())
  files.write_bytes(path, exported.serialize())
  files.write_text(path_beside(path), json.dumps(program.description, indent=2) + "\n")


def _load(path: Path):
  exported = jax.export.deserialize(bytearray(files.read_bytes(path, most=MOST)))
  compiled = jax.jit(exported.call)
  return lambda pixels: np.asarray(compiled(pixels))


STABLEHLO = ProgramFormat(suffix=".stablehlo", check=_check, save=_save, load=_load)
