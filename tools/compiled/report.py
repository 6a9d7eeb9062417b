"""The TPU compiler's report on a recipe's training step: memory, speed, settings that fit."""

import dataclasses
import sys

from compiled import compilation
from compiled.breakdown import breakdown
from vit_jax import recipes
from vit_jax.config import Config, ConfigError, Optimizer
from vit_jax.experiments import step_program
from vit_jax.recipes import cost
from vit_jax.training import checks

# Table 2 of the paper: TPUv3-core-days of pre-training and their epochs, by model and classes. The
# table does not state the epochs of L/16: we assume the longer of the paper's two.
PAPER_CORE_DAYS = {
  ("ViT-H/14", 18_291): (2500, 14),
  ("ViT-L/16", 18_291): (680, 14),
  ("ViT-L/16", 21_843): (230, 90),
}


def report(config: Config, topology: str, *, parts: bool = False) -> dict:
  """The whole report as one object; if the step does not fit, it includes settings that do.

  Args:
    config: the recipe.
    topology: such as "v3:16x16".
    parts: whether to say where the time goes, for the program that fits.

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
  devices = compilation.devices_of(topology)
  tell(f"Compiling for {len(devices)} x {devices[0].device_kind}; it takes a minute or several.")
  program = compilation.compile_step(config, devices)
  return dict(
    topology=topology,
    model=cost.label(config.model),
    image_size=config.data.image_size,
    global_batch=config.batch_size,
    **facts(config, program, parts=parts),
    remedy=None if program.fits else find_remedy(config, program, devices, parts=parts),
  )


def facts(config: Config, program, *, parts: bool = False) -> dict:
  """The reported facts of one program; if asked, with the parts of its time."""
  return dict(
    devices=program.devices,
    device_kind=program.device_kind,
    accumulation=config.parts,
    argument_bytes=program.argument_bytes,
    temporary_bytes=program.temporary_bytes,
    peak_bytes=program.peak_bytes,
    hbm_bytes=compilation.known(program.device_kind).hbm_bytes,
    fits=program.fits,
    flops_per_device=flops_per_device(config, program),
    compiler_flops_per_device=program.flops,
    collectives={kind: dict(count=n, bytes=b) for kind, (n, b) in program.collectives.items()},
    step_seconds_estimate=program.step_seconds,
    optimal_seconds=program.optimal_seconds,
    **(estimates(config, program) if program.fits else {}),
    **(dict(breakdown=breakdown_of(program)) if parts and program.fits else {}),
  )


def breakdown_of(program) -> list[dict]:
  """Where the time of a step goes: cycles, seconds, the least seconds and their ratio."""
  chip = compilation.known(program.device_kind)
  return [
    dict(
      category=part.category,
      cycles=part.cycles,
      seconds=part.cycles / chip.clock_hz,
      bound_seconds=part.bound_seconds,
      ratio=part.cycles / chip.clock_hz / part.bound_seconds if part.bound_seconds else None,
    )
    for part in breakdown(program.text, chip)
  ]


def find_remedy(config: Config, program, devices, *, parts: bool = False) -> dict | None:
  """The first settings that fit, and the facts of their program; None if none of them fits."""

  def compiled(overrides):
    tell(f"It does not fit; trying {flags_of(overrides)}.")
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
  peak = compilation.known(program.device_kind).peak_flops
  flops = flops_per_device(config, program)
  result = dict(
    images_per_second_per_device=config.batch_size / program.devices / seconds,
    mfu=flops and flops / seconds / peak,
  )
  examples = recipes.examples_of(config)
  if examples or not config.duration.epochs:
    days = steps.of_run(config, examples or step_program.UNKNOWN_LENGTH).total * seconds / 86_400
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
  return compilation.step_flops(config) / program.devices if trains_all(config) else None


def core_days_in_paper(config: Config) -> tuple[int, int] | tuple[None, None]:
  """Table 2's core-days and epochs, if a step costs as much as that of the model there."""
  model = config.model
  printed = PAPER_CORE_DAYS.get((model.name, model.num_classes))
  its = cost.pretraining(model.name)
  if not printed or config.objective != its.objective:
    return None, None
  as_many = dataclasses.replace(its.model, num_classes=model.num_classes)
  its = dataclasses.replace(its, model=as_many)
  same = cost.forward_macs(config) == cost.forward_macs(its)
  return printed if same and trains_all(config) else (None, None)


def trains_all(config: Config) -> bool:
  """Whether all parameters are trained; else the formula of a step's FLOPs does not hold."""
  return config.optimizer.trainable == Optimizer().trainable


def table(row: dict) -> str:
  """The report in words."""
  lines = [
    f"{row['model']} at {row['image_size']} px, batch {row['global_batch']}, on {row['topology']}: "
    f"{row['devices']} x {row['device_kind']}",
    *lines_of(row),
  ]
  if row["remedy"]:
    lines.append(f"{flags_of(row['remedy']['settings'])} makes it fit:")
    lines += lines_of(row["remedy"])
  elif not row["fits"]:
    lines.append("no setting of fsdp, remat and accumulation that was tried makes it fit")
  return "\n".join(lines)


def flags_of(overrides: dict) -> str:
  """Settings as flags of a command."""
  return " ".join(f"--config.{key}={value}" for key, value in overrides.items())


def tell(words: str):
  """Prints progress on stderr, apart from the report on stdout."""
  print(words, file=sys.stderr, flush=True)


def lines_of(row: dict) -> list[str]:
  """One program's facts in words."""
  size = lambda n: f"{n / 2**30:.2f} GiB"
  over = row["peak_bytes"] - row["hbm_bytes"]
  # Some memory is reserved, so a program that needs a little less than all of it may not fit.
  short = f", by {size(over)}" if over > 0 else ""
  verdict = "fits" if row["fits"] else f"does not fit{short}"
  lines = [
    f"memory of each device: arguments {size(row['argument_bytes'])}, temporaries "
    f"{size(row['temporary_bytes'])}, peak {size(row['peak_bytes'])} of {size(row['hbm_bytes'])}: "
    f"{verdict}"
  ]
  if not row["fits"]:
    return lines
  if row["flops_per_device"] is not None:
    lines.append(f"FLOPs of each device, analytic: {row['flops_per_device']:.4g}")
  mfu = "unknown for partial training" if row["mfu"] is None else f"{row['mfu']:.0%}"
  for kind, moved in row["collectives"].items():
    lines.append(f"{kind}: {moved['count']}, results of {moved['bytes'] / 2**20:,.1f} MiB")
  lines.append(
    "a step, by the cycles that the compiler counts (no communication): "
    f"{row['step_seconds_estimate'] * 1e3:.1f} ms, "
    f"{row['images_per_second_per_device']:.0f} images/s each, MFU {mfu}"
  )
  if row["optimal_seconds"]:
    lines.append(
      f"at full rates, each operation by itself (optimistic): {row['optimal_seconds'] * 1e3:.1f} ms"
    )
  if "days" in row:
    days, paper = row["days"], row["paper_core_days"]
    length = f"{days:.1f} days" if days >= 1 else f"{24 * days:.1f} hours"
    lines.append(
      f"the recipe: {length}, {row['core_days']:,.1f} device-days"
      + (f" (Table 2: {paper:,} TPUv3-core-days, {row['paper_epochs']} epochs)" if paper else "")
    )
  return lines + lines_of_parts(row.get("breakdown", []))


def lines_of_parts(parts: list[dict]) -> list[str]:
  """Where the time goes, in words; empty without parts."""
  if not parts:
    return []
  total = {key: sum(part[key] for part in parts) for key in ("seconds", "bound_seconds")}
  total |= dict(category="all", ratio=total["seconds"] / total["bound_seconds"])
  lines = [f"{'where the time goes, ms':24s}{'cycles':>10s}{'bound':>10s}{'ratio':>8s}"]
  for part in (*parts, total):
    ratio = "" if part["ratio"] is None or part["bound_seconds"] < 5e-6 else f"{part['ratio']:.2f}"
    times = (f"{part[key] * 1e3:10.2f}" for key in ("seconds", "bound_seconds"))
    lines.append(f"{part['category']:24s}{''.join(times)}{ratio:>8s}")
  return lines
