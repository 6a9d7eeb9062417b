"""The compiler's report on a recipe's training step: memory, speed, settings that fit."""

import dataclasses
import sys

from vit_jax import recipes
from vit_jax.config import AUTO, Config, ConfigError, RunError
from vit_jax.devices import mesh as meshes
from vit_jax.extras.compiled import communication, compilation, platforms, words
from vit_jax.extras.compiled import largest as largest_batch
from vit_jax.extras.compiled.breakdown import Part, breakdown
from vit_jax.extras.compiled.platform import known
from vit_jax.extras.experiments import step_program
from vit_jax.recipes import cost
from vit_jax.training import checks

# Table 2 of the paper: TPUv3-core-days of pre-training and their epochs, by model and classes. The
# table does not state the epochs of L/16: we assume the longer of the paper's two.
PAPER_CORE_DAYS = {
  ("ViT-H/14", 18_291): (2500, 14),
  ("ViT-L/16", 18_291): (680, 14),
  ("ViT-L/16", 21_843): (230, 90),
}


def report(config: Config, topology: str, *, parts: bool = False, largest: bool = False) -> dict:
  """The whole report as one object; if the step does not fit, it includes settings that do.

  Its field "chosen" has the settings that were left open and became what fits: {"accumulation": 8},
  or {}.

  Args:
    config: the recipe.
    topology: such as "v3:16x16".
    parts: whether to say where the time goes, for the program that fits.
    largest: whether to report on the largest batch that fits, not on that of the recipe.

  Raises:
    ConfigError: the recipe trains nothing, the batch or the mesh does not fit the slice, or there
      is no such slice.
    RunError: the compiler is not installed.
  """
  if not config.duration.given():
    raise ConfigError(
      "config.duration is 0, so this recipe has no training step to compile; name one that trains."
    )
  checks.check_model(config.model, config.data.image_size)
  checks.check_batch(config.batch_size, parts=config.parts)
  devices = platforms.devices_of(topology)
  asked = config.accumulation
  tell(f"Compiling for {len(devices)} x {devices[0].device_kind}; it takes a minute or several.")
  if largest:
    config, program = with_largest_batch(config, devices)
  else:
    config, program = with_fewest_parts(config, devices)
  result = dict(
    topology=topology,
    model=cost.label(config.model),
    image_size=config.data.image_size,
    global_batch=config.batch_size,
    **facts(config, program, parts=parts),
    chosen={"accumulation": config.accumulation} if config.accumulation != asked else {},
    remedy=None,
  )
  if not program.fits:
    result["remedy"] = find_remedy(config, program, devices, parts=parts)
  return result


def with_fewest_parts(config: Config, devices):
  """The recipe and its program; if config.accumulation is AUTO, it is the smallest that fits."""
  program = compilation.compile_step(config, devices)
  if config.accumulation != AUTO or program.fits:
    return config, program
  for parts in compilation.enough_parts(config, program):
    tell(f"Trying {parts} parts of the batch.")
    smaller = compilation.overridden(config, {"accumulation": parts})
    if (fitting := compilation.compile_step(smaller, devices)).fits:
      return smaller, fitting
  return config, program


def with_largest_batch(config: Config, devices):
  """The recipe with the largest batch that fits, and its program.

  Raises:
    ConfigError: the mesh does not match the devices.
    RunError: not even one image for each group of devices along "model" fits.
  """
  split = dict(batch_size=len(devices) * config.parts, accumulation=config.parts)
  each = meshes.groups(meshes.make(config.mesh, devices=devices, **split)) * config.parts
  unit = "device" if config.mesh.model == 1 else f"{config.mesh.model} devices"

  def with_batch(images: int) -> Config:
    return compilation.overridden(config, {"batch_size": images * each})

  def compiled(images: int):
    tell(f"Trying {images * config.parts} images for each {unit}.")
    return compilation.compile_step(with_batch(images), devices, unlimited=True)

  images, program = largest_batch.largest(compiled, config.batch_size // each)
  if program is None:
    raise RunError(
      f"A step does not fit with one image for each {unit}; split the parameters, "
      "--config.mesh.fsdp, or compute activations again, --config.model.remat=everything."
    )
  return with_batch(images), program


def facts(config: Config, program, *, parts: bool = False) -> dict:
  """The reported facts of one program; with `parts`, also where its time goes."""
  categories = []
  if program.text:
    categories = breakdown(program.text, known(program.device_kind))
  result = dict(
    devices=program.devices,
    device_kind=program.device_kind,
    made_from=program.made_from,
    accumulation=config.parts,
    argument_bytes=program.argument_bytes,
    temporary_bytes=program.temporary_bytes,
    second_state_bytes=program.second_state_bytes,
    peak_bytes=program.peak_bytes,
    hbm_bytes=known(program.device_kind).hbm_bytes,
    usable_bytes=program.usable_bytes,
    fits=program.fits,
    flops_per_device=flops_per_device(config, program),
    compiler_flops_per_device=program.flops,
    collectives={kind: dict(count=n, bytes=b) for kind, (n, b) in program.collectives.items()},
    step_seconds_estimate=program.step_seconds,
    optimal_seconds=program.optimal_seconds,
  )
  if program.step_seconds:
    result |= estimates(config, program)
  if categories:
    result |= bounds(config, program, categories)
  if program.text and program.devices > 1:
    result |= sent(program)
  if parts and categories:
    result["breakdown"] = breakdown_of(program, categories)
  return result


def bounds(config: Config, program, parts: list[Part]) -> dict:
  """The bound on the speed of a step: each operation at a full rate of the device."""
  seconds = sum(part.bound_seconds for part in parts)
  peak = known(program.device_kind).peak_flops
  flops = flops_per_device(config, program)
  return dict(
    launches=sum(part.launches for part in parts),
    moved_bytes=sum(part.moved_bytes for part in parts),
    matmul_seconds_bound=sum(part.flops for part in parts) / peak,
    step_seconds_bound=seconds,
    images_per_second_per_device_bound=config.batch_size / program.devices / seconds,
    mfu_bound=flops and flops / seconds / peak,
  )


def sent(program) -> dict:
  """The bytes that one GPU sends in a step, and their least seconds; {} for TPUs."""
  chip = known(program.device_kind)
  if not chip.link_bandwidth:
    return {}
  traffic = communication.traffic(program.text, program.hosts, program.devices // program.hosts)
  link, network = traffic.seconds(chip)
  return traffic._asdict() | dict(link_seconds_bound=link, network_seconds_bound=network)


def breakdown_of(program, parts: list[Part]) -> list[dict]:
  """Where the time of a step goes, by category; seconds and ratio come from the cycles."""
  clock = known(program.device_kind).clock_hz
  rows = []
  for part in parts:
    seconds = part.cycles / clock if clock else None
    ratio = seconds / part.bound_seconds if seconds and part.bound_seconds else None
    rows.append(part._asdict() | dict(seconds=seconds, ratio=ratio))
  return rows


def find_remedy(config: Config, program, devices, *, parts: bool = False) -> dict | None:
  """The first settings that fit, and the facts of their program; None if none of them fits."""

  def compiled(overrides):
    tell(f"It does not fit; trying {words.flags_of(overrides)}.")
    return compilation.compile_step(compilation.overridden(config, overrides), devices)

  for overrides, smaller in compilation.smaller(config, program, compiled):
    if smaller.fits:
      changed = compilation.overridden(config, overrides)
      return dict(settings=overrides, **facts(changed, smaller, parts=parts))
  return None


def estimates(config: Config, program) -> dict:
  """Speed, MFU and days, from the compiler's estimate of a step."""
  from vit_jax.training import steps

  seconds = program.step_seconds
  peak = known(program.device_kind).peak_flops
  flops = flops_per_device(config, program)
  result = dict(
    images_per_second_per_device=config.batch_size / program.devices / seconds,
    mfu=flops and flops / seconds / peak,
  )
  examples = recipes.examples_of(config)
  if examples or not config.duration.epochs:
    lengths = steps.durations_in_steps(config, examples or step_program.UNKNOWN_LENGTH)
    days = lengths.total * seconds / 86_400
    paper_core_days, paper_epochs = core_days_in_paper(config)
    result |= dict(
      days=days,
      core_days=days * program.devices,
      paper_core_days=paper_core_days,
      paper_epochs=paper_epochs,
    )
  return result


def flops_per_device(config: Config, program) -> float | None:
  """FLOPs of a step by the formula; None if only a part of the model is trained."""
  of_image = cost.training_flops(config)
  return of_image and config.batch_size * of_image / program.devices


def core_days_in_paper(config: Config) -> tuple[int, int] | tuple[None, None]:
  """Table 2's core-days and epochs, if a step costs as much as that of the model there."""
  model = config.model
  printed = PAPER_CORE_DAYS.get((model.name, model.num_classes))
  its = cost.pretraining(model.name)
  if not printed or config.objective != its.objective:
    return None, None
  as_many = dataclasses.replace(its.model, num_classes=model.num_classes)
  its = dataclasses.replace(its, model=as_many)
  if cost.training_flops(config) != cost.training_flops(its):
    return None, None
  return printed


def tell(progress: str):
  """Prints progress on stderr, apart from the report on stdout."""
  print(progress, file=sys.stderr, flush=True)
