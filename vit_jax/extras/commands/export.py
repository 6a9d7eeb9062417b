"""Writes parameters in another format, or a program, and says how images are prepared.

vit-jax export --source WORKDIR --output params.npz
vit-jax export --source ViT-B_16.npz --format huggingface --output vit_b16 --verify
vit-jax export --source WORKDIR --output model.stablehlo --verify

The folder of --output is made if it does not exist. The card is FILE.json beside the file: image
size, resizing, class names. Arrays in .npz files have the names of the published weights, those in
.safetensors files the names of timm, if timm has such a model. A program, in StableHLO or ONNX
(model.onnx), computes logits of pixels without vit_jax.

Exit status: 0 done; 2 wrong usage: nothing at --source, no such step, or --output cannot
be written; 1 the weights are damaged or do not fit the format, or --verify found a difference.
"""

from vit_jax.config import ConfigError
from vit_jax.config.tool_flags import ToolFlags, anywhere, ending, folder, whole
from vit_jax.process.text import one_line
from vit_jax.storage import files


def flags() -> ToolFlags:
  """The command line."""
  result = ToolFlags("export", __doc__)
  result.add_source(required=True)
  add = result.add_argument
  add("--output", type=anywhere, required=True, help="file or folder; its suffix gives the format")
  add("--format", default="", metavar="NAME", help="name of the format; default: by the suffix")
  add(
    "--step",
    type=whole(0, 2**63 - 1),
    default=0,
    help="step of the checkpoint, if --source is a workdir; default: the newest",
  )
  result.add_average()
  add(
    "--verify",
    action="store_true",
    help="read the result, run both models, and exit with 1 if logits or features differ by more "
    "than 1e-5; for a program, by more than 1e-4 of the largest one",
  )
  add(
    "--model-card",
    action="store_true",
    help="also write README.md for the Hugging Face Hub, beside the file or in the folder",
  )
  return result


def check(args):
  """Checks the command line, and makes the folder of the output.

  Raises:
    ConfigError: the flags contradict one another, or the output cannot be written there.
  """
  from vit_jax.extras import hub_card

  form = _format(args)
  folder(args.output.parent, "--output")
  if files.exists(args.output) and files.is_folder(args.output) == bool(form.suffix):
    kind = "folder" if form.suffix else "file"
    raise ConfigError(f"--output {args.output} is a {kind} already; give another name.")
  if args.model_card:
    hub_card.check(args.output, form.suffix)


def _format(args):
  """The format of weights or of programs."""
  from vit_jax import weights
  from vit_jax.extras.programs import program
  from vit_jax.registry import PROGRAM_FORMATS

  if form := program.format_of(args.output, args.format):
    form.check()
    return form
  try:
    return weights.format_to_write(args.output, args.format)
  except ConfigError as error:
    programs = ", ".join(f"{form.suffix} ({key})" for key, form in PROGRAM_FORMATS.items())
    raise ConfigError(f"{error} Programs can be written too: {programs}.") from error


def export(args) -> str:
  """Exports as the command line asks; returns a report.

  Raises:
    ConfigError: as `check`.
    ValueError, OSError, RunError: the export failed, or `--verify` found a difference.
  """
  check(args)
  from vit_jax.extras import hub_card
  from vit_jax.extras.programs import program
  from vit_jax.inference import model as inference

  model = inference.read_model(args.source, step=args.step, average=args.average)
  write = _write_weights
  if program.format_of(args.output, args.format):
    write = _write_program
  lines = write(model, args)
  if args.model_card:
    lines.append(hub_card.write(model, args.output, _format(args).suffix))
  return "\n".join(map(one_line, lines))


def _write_weights(model, args) -> list[str]:
  from vit_jax.inference import export as exporting
  from vit_jax.inference import model as inference

  lines = exporting.write(model, args.source, args.output, args.format)
  if args.verify:
    lines.append(exporting.verify(model, inference.read_model(args.output)))
  return lines


def _write_program(model, args) -> list[str]:
  from vit_jax.extras.programs import program

  form = program.format_of(args.output, args.format)
  model = model.at_size(model.card.image_size or model.module.usual_side())
  lines = program.write(model, args.source, args.output, form)
  if args.verify:
    lines.append(program.verify(model, args.output, form))
  return lines


def main(arguments: list[str] | None = None):
  """Exports; see the exit status above."""
  args = flags().parse_args(arguments)
  with ending("export"):
    files.check_weights(args.source)
    print(export(args))
