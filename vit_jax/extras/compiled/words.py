"""The compiler's report in words."""

from vit_jax.process.progress import speed_in_words


def table(row: dict) -> str:
  """The report in words."""
  lines = [
    f"{row['model']} at {row['image_size']} px, batch {row['global_batch']}, on {row['topology']}: "
    f"{row['devices']} x {row['device_kind']}",
  ]
  if row["chosen"]:
    lines.append(f"chosen so that it fits: {flags_of(row['chosen'])}")
  lines += lines_of(row)
  if row["remedy"]:
    lines.append(f"{flags_of(row['remedy']['settings'])} makes it fit:")
    lines += lines_of(row["remedy"])
  elif not row["fits"]:
    lines.append("no setting of fsdp, remat and accumulation that was tried makes it fit")
  return "\n".join(lines)


def flags_of(overrides: dict) -> str:
  """Settings as flags of a command."""
  return " ".join(f"--config.{key}={value}" for key, value in overrides.items())


def lines_of(row: dict) -> list[str]:
  """One program's facts in words."""
  lines = [line_of_memory(row)]
  if not row["fits"]:
    return lines
  if row["flops_per_device"] is not None:
    lines.append(f"FLOPs of each device, analytic: {row['flops_per_device']:.4g}")
  for kind, moved in row["collectives"].items():
    lines.append(f"{kind}: {moved['count']}, results of {moved['bytes'] / 2**20:,.1f} MiB")
  return lines + lines_of_time(row) + lines_of_parts(row)


def line_of_memory(row: dict) -> str:
  """The memory of a device that the program needs, and whether it fits."""
  copied = ""
  if row["second_state_bytes"]:
    copied = f", a second state for config.verify_every {size(row['second_state_bytes'])}"
  taken = ""
  if row["usable_bytes"] != row["hbm_bytes"]:
    taken = f", of which JAX takes {size(row['usable_bytes'])}"
  return (
    f"memory of each device: arguments {size(row['argument_bytes'])}, temporaries "
    f"{size(row['temporary_bytes'])}{copied}, peak {size(row['peak_bytes'])} of "
    f"{size(row['hbm_bytes'])}{taken}: {verdict(row)}"
  )


def verdict(row: dict) -> str:
  """Whether the program fits, and how much memory it lacks if not."""
  if row["fits"]:
    return "fits"
  lacking = row["peak_bytes"] - row["usable_bytes"]
  # TPUs reserve some memory, so a program that needs a little less than all of it may not fit.
  if lacking <= 0:
    return "does not fit"
  return f"does not fit, by {size(lacking)}"


def size(count: float) -> str:
  """A number of bytes in GiB."""
  return f"{count / 2**30:.2f} GiB"


def lines_of_time(row: dict) -> list[str]:
  """The estimates of a step, its bound, and the length of the recipe, as far as they are known."""
  lines = []
  if row["step_seconds_estimate"]:
    lines.append(
      "a step, by the cycles that the compiler counts (no communication): "
      f"{row['step_seconds_estimate'] * 1e3:.1f} ms, {rate(row, '')}"
    )
  if row["optimal_seconds"]:
    lines.append(
      f"at full rates, each operation by itself (optimistic): {row['optimal_seconds'] * 1e3:.1f} ms"
    )
  if "step_seconds_bound" in row and not row["step_seconds_estimate"]:
    lines.append(
      f"a step is no faster than its bound: {row['step_seconds_bound'] * 1e3:.1f} ms, "
      f"{rate(row, '_bound')}; matmuls alone {row['matmul_seconds_bound'] * 1e3:.1f} ms; "
      f"{row['launches']:,} kernels and copies move {row['moved_bytes'] / 2**30:.1f} GiB"
    )
  if "days" in row:
    lines.append(line_of_length(row))
  return lines + line_of_traffic(row)


def rate(row: dict, suffix: str) -> str:
  """The images/s and the MFU in the fields with a suffix."""
  images = row[f"images_per_second_per_device{suffix}"]
  return f"{speed_in_words(images)} each, MFU {percent(row[f'mfu{suffix}'])}"


def line_of_length(row: dict) -> str:
  """The length of the recipe, beside the paper's if it is known."""
  days = row["days"]
  length = f"{days:.1f} days" if days >= 1 else f"{24 * days:.1f} hours"
  line = f"the recipe: {length}, {row['core_days']:,.1f} device-days"
  paper = row["paper_core_days"]
  if paper:
    line += f" (Table 2: {paper:,} TPUv3-core-days, {row['paper_epochs']} epochs)"
  return line


def line_of_traffic(row: dict) -> list[str]:
  """The bytes that a GPU sends in a step; empty for a single GPU, and for TPUs."""
  if "link_bytes" not in row:
    return []
  line = (
    f"each GPU sends {row['link_bytes'] / 2**20:,.1f} MiB to the others of its machine, at the "
    f"published rate in {row['link_seconds_bound'] * 1e3:.2f} ms"
  )
  if row["network_bytes"]:
    time = "no rate is known"
    if row["network_seconds_bound"] is not None:
      time = f"{row['network_seconds_bound'] * 1e3:.2f} ms"
    line += f", and {row['network_bytes'] / 2**20:,.1f} MiB to other machines: {time}"
  return [line + "; a step may hide them"]


def percent(mfu: float | None) -> str:
  """An MFU in words."""
  if mfu is None:
    return "unknown for partial training"
  return f"{mfu:.0%}"


def lines_of_parts(row: dict) -> list[str]:
  """Where the time goes, in words; empty without a breakdown."""
  categories = row.get("breakdown")
  if not categories:
    return []
  timed = categories[0]["seconds"] is not None
  keys = ["launches", "moved_bytes", "bound_seconds"]
  titles = f"{'by category':24s}{'launches':>10s}{'GiB':>9s}{'bound, ms':>11s}"
  if timed:
    keys.append("seconds")
    titles += f"{'cycles, ms':>12s}{'ratio':>8s}"
  total = {"category": "all", "ratio": None}
  for key in keys:
    total[key] = sum(category[key] for category in categories)
  if timed:
    total["ratio"] = total["seconds"] / total["bound_seconds"]
  return [titles] + [line_of_part(category, timed=timed) for category in (*categories, total)]


def line_of_part(part: dict, *, timed: bool) -> str:
  """A category as a line of the table."""
  line = (
    f"{part['category']:24s}{part['launches']:10,d}{part['moved_bytes'] / 2**30:9.2f}"
    f"{part['bound_seconds'] * 1e3:11.2f}"
  )
  if not timed:
    return line
  ratio = ""
  if part["ratio"] is not None and part["bound_seconds"] >= 5e-6:
    ratio = f"{part['ratio']:.2f}"
  return f"{line}{part['seconds'] * 1e3:12.2f}{ratio:>8s}"
