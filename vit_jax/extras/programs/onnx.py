"""Programs in ONNX, for every batch size, converted by jax2onnx.

The description is in the file's metadata: a text for each key, as JSON if it is no text.
"""

import json
import logging

from vit_jax.config import ConfigError
from vit_jax.extras.programs.program import INPUT, MOST, Program, ProgramFormat
from vit_jax.storage import files
from vit_jax.storage.paths import Path

INSTALL = "python -m venv onnx && onnx/bin/pip install . jax2onnx onnxruntime"


def _check():
  try:
    import jax2onnx  # noqa: F401
    import onnxruntime  # noqa: F401  verifies
  except ImportError as error:
    raise ConfigError(
      "Programs in ONNX need jax2onnx, which takes an older Orbax than the tests here. Install it "
      f"in an environment of its own: {INSTALL} ({error})."
    ) from error


def _save(path: Path, program: Program):
  import onnx
  from jax2onnx import to_onnx

  logging.getLogger("onnx_ir").setLevel(logging.ERROR)  # warns of types that nobody needs
  names = dict(input_names=[INPUT], output_names=[program.output])
  model = to_onnx(program.function, [program.input()], model_name="vit_jax", **names)
  texts = {key: _text(value) for key, value in program.description.items()}
  onnx.helper.set_model_props(model, texts)
  files.write_bytes(path, model.SerializeToString())


def _text(value) -> str:
  if isinstance(value, str):
    return value
  return json.dumps(value)


def _load(path: Path):
  import onnxruntime

  session = onnxruntime.InferenceSession(
    files.read_bytes(path, most=MOST), providers=["CPUExecutionProvider"]
  )
  return lambda pixels: session.run(None, {INPUT: pixels})[0]


ONNX = ProgramFormat(suffix=".onnx", check=_check, save=_save, load=_load)
