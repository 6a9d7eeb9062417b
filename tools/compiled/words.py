"""The compiler's report in words."""


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
  """What the program needs of a device's memory, and whether it fits."""
  size = lambda n: f"{n / 2**30:.2f} GiB"
  over = row["peak_bytes"] - row["usable_bytes"]
  # TPUs reserve some memory, so a program that needs a little less than all of it may not fit.
  short = f", by {size(over)}" if over > 0 else ""
  whole = row["usable_bytes"] == row["hbm_bytes"]
  taken = "" if whole else f", of which JAX takes {size(row['usable_bytes'])}"
  second = row["second_state_bytes"]
  copied = f", a second state for config.verify_every {size(second)}" if second else ""
  return (
    f"memory of each device: arguments {size(row['argument_bytes'])}, temporaries "
    f"{size(row['temporary_bytes'])}{copied}, peak {size(row['peak_bytes'])} of "
    f"{size(row['hbm_bytes'])}{taken}: {'fits' if row['fits'] else f'does not fit{short}'}"
  )


def lines_of_time(row: dict) -> list[str]:
  """The estimates of a step, its bound, and the length of the recipe, as far as they are known."""
  lines = []
  rate = lambda suffix: (
    f"{row[f'images_per_second_per_device{suffix}']:.0f} images/s each, "
    f"MFU {percent(row[f'mfu{suffix}'])}"
  )
  if row["step_seconds_estimate"]:
    lines.append(
      "a step, by the cycles that the compiler counts (no communication): "
      f"{row['step_seconds_estimate'] * 1e3:.1f} ms, {rate('')}"
    )
  if row["optimal_seconds"]:
    lines.append(
      f"at full rates, each operation by itself (optimistic): {row['optimal_seconds'] * 1e3:.1f} ms"
    )
  if "step_seconds_bound" in row and not row["step_seconds_estimate"]:
    lines.append(
      f"a step is no faster than its bound: {row['step_seconds_bound'] * 1e3:.1f} ms, "
      f"{rate('_bound')}; matmuls alone {row['matmul_seconds_bound'] * 1e3:.1f} ms; "
      f"{row['launches']:,} kernels and copies move {row['moved_bytes'] / 2**30:.1f} GiB"
    )
  if "days" in row:
    days, paper = row["days"], row["paper_core_days"]
    length = f"{days:.1f} days" if days >= 1 else f"{24 * days:.1f} hours"
    lines.append(
      f"the recipe: {length}, {row['core_days']:,.1f} device-days"
      + (f" (Table 2: {paper:,} TPUv3-core-days, {row['paper_epochs']} epochs)" if paper else "")
    )
  return lines + line_of_traffic(row)


def line_of_traffic(row: dict) -> list[str]:
  """What a GPU sends in a step; empty for one alone, and for TPUs."""
  if "link_bytes" not in row:
    return []
  line = (
    f"each GPU sends {row['link_bytes'] / 2**20:,.1f} MiB to the others of its machine, at the "
    f"published rate in {row['link_seconds_bound'] * 1e3:.2f} ms"
  )
  if row["network_bytes"]:
    seconds = row["network_seconds_bound"]
    time = "no rate is known" if seconds is None else f"{seconds * 1e3:.2f} ms"
    line += f", and {row['network_bytes'] / 2**20:,.1f} MiB to other machines: {time}"
  return [line + "; a step may hide them"]


def percent(mfu: float | None) -> str:
  """An MFU in words."""
  return "unknown for partial training" if mfu is None else f"{mfu:.0%}"


def lines_of_parts(row: dict) -> list[str]:
  """Where the time goes, in words; empty without parts."""
  parts = row.get("breakdown")
  if not parts:
    return []
  timed = parts[0]["seconds"] is not None
  keys = ("launches", "moved_bytes", "bound_seconds", *(("seconds",) if timed else ()))
  total = {"category": "all"} | {key: sum(part[key] for part in parts) for key in keys}
  total["ratio"] = total["seconds"] / total["bound_seconds"] if timed else None
  titles = f"{'by category':24s}{'launches':>10s}{'GiB':>9s}{'bound, ms':>11s}"
  titles += f"{'cycles, ms':>12s}{'ratio':>8s}" if timed else ""
  return [titles] + [line_of_part(part, timed=timed) for part in (*parts, total)]


def line_of_part(part: dict, *, timed: bool) -> str:
  """A category as a line of the table."""
  line = (
    f"{part['category']:24s}{part['launches']:10,d}{part['moved_bytes'] / 2**30:9.2f}"
    f"{part['bound_seconds'] * 1e3:11.2f}"
  )
  if not timed:
    return line
  ratio = "" if part["ratio"] is None or part["bound_seconds"] < 5e-6 else f"{part['ratio']:.2f}"
  return f"{line}{part['seconds'] * 1e3:12.2f}{ratio:>8s}"
