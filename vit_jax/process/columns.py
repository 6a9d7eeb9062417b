"""Tables of aligned columns, for the console."""

from collections.abc import Collection, Sequence


def aligned(rows: Sequence[Sequence[str]], *, left: Collection[int] = (0,)) -> str:
  """The rows as lines whose columns are two spaces apart.

  Args:
    rows: the cells of each row; a row may have fewer cells than others.
    left: indices of the columns to align to the left; the others are aligned to the right.
  """
  count = max(map(len, rows), default=0)
  filled = [[*row, *[""] * (count - len(row))] for row in rows]
  widths = [max(map(len, column)) for column in zip(*filled, strict=True)]
  return "\n".join(
    "  ".join(
      cell.ljust(width) if column in left else cell.rjust(width)
      for column, (cell, width) in enumerate(zip(row, widths, strict=True))
    ).rstrip()
    for row in filled
  )
