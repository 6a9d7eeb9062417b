"""The report on a new dataset, as text."""

from vit_jax.data.preparation.prepare import REPORT, VERSION


def in_words(report: dict, data_dir: str, name: str) -> str:
  """The report as text.

  Args:
    report: from `prepare.prepare`.
    data_dir: folder of all datasets.
    name: name of this dataset.
  """
  lines = []
  for split, found in report["splits"].items():
    lines.append(
      f"{split}: {found['examples']:,} images; left out as broken: {found['broken']:,}; with a "
      f"wrong suffix: {found['misnamed']:,}"
    )
    lines += [f"  {note}" for note in found["notes"]]
    lines += [f"  {name}" for names in found["names"].values() for name in names[:3]]
    if found["in_order_of_classes"]:
      lines.append("  The images were sorted by class; the dataset has them in a random order.")
  for splits, found in report["duplicates"].items():
    lines.append(f"In {splits} {found['images']:,} images are repeated.")
    lines += [f"  {again}: as {first}" for first, again in found["names"][:3]]
  folder = f"{data_dir}/{name}/{VERSION}"
  lines.append(f"Dataset: {folder} (--config.data.train.source=tfds:{name})")
  lines.append(f"Report:   {folder}/{REPORT}")
  return "\n".join(lines)
