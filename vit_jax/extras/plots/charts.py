"""Charts for a page: lines and matrices as SVG that suits light and dark screens."""

import collections
import dataclasses
import io
import itertools
import warnings
from collections.abc import Sequence

import numpy as np

from vit_jax.extras.plots.labels import fonts
from vit_jax.storage import files
from vit_jax.storage.paths import Path

WIDTH, HEIGHT = 4.8, 2.7  # inches; so small that the text is readable on a phone
MAX_LEGEND = 24  # lines of a chart that are named
MAX_POINTS = 4000  # in a chart
DPI = 144  # of images inside a figure
PNG_DPI = 180
MAX_NAME = 40  # characters of a name
NARROW = 300  # a logarithmic axis whose ends have a lower ratio marks 2 and 5 too
NARROWER = 10  # with a ratio below this, it marks evenly spaced numbers
INK = "#010203"  # is replaced by the page's text colour, light or dark
STYLE = (
  "<style>:root{--ink:#222}@media (prefers-color-scheme:dark){:root{--ink:#ddd}}"
  "@media print{:root{--ink:#222}}</style>"
)
RC = {
  "svg.fonttype": "none",
  "svg.hashsalt": "vit_jax",
  "text.parse_math": False,
  "axes.unicode_minus": False,
  "font.size": 10,
  "figure.facecolor": "none",
  "axes.facecolor": "none",
  "legend.facecolor": "none",
} | {f"{element}.color": INK for element in ("text", "xtick", "ytick", "grid")}
RC |= {"axes.edgecolor": INK, "axes.labelcolor": INK}
WITHOUT_METADATA = dict.fromkeys(("Date", "Creator", "Format", "Type"))


@dataclasses.dataclass(frozen=True)
class Series:
  """A line of a chart.

  Attributes:
    name: for the legend.
    steps, values: (N,) each, finite.
    group: lines of the same group share a colour; None: each has its own.
    dots: whether each point is marked.
  """

  name: str
  steps: np.ndarray
  values: np.ndarray
  group: int | None = None
  dots: bool = False


@dataclasses.dataclass(frozen=True)
class Panel:
  """Lines that share their axes.

  Attributes:
    series: the lines; long ones are thinned.
    label: of the vertical axis.
    log: whether the vertical axis is logarithmic, if all values are positive.
    percent: whether values are fractions of 1, shown in percent.
  """

  series: Sequence[Series]
  label: str
  log: bool = False
  percent: bool = False


def lines(panels: Sequence[Panel], *, height: float = HEIGHT) -> bytes:
  """Charts of values by step, one above the other, as SVG; `height` of each in inches.

  The first panel with several lines has a legend, which names the first `MAX_LEGEND`.
  """
  import matplotlib
  from matplotlib.figure import Figure

  most = MAX_POINTS // sum(len(panel.series) for panel in panels)
  rows = 0
  with matplotlib.rc_context(RC):
    figure = Figure(figsize=(WIDTH, height * len(panels)), layout="constrained")
    every = figure.subplots(len(panels), sharex=True, squeeze=False).flat
    for axes, panel in zip(every, panels, strict=True):
      draw(axes, panel, most)
      if not rows and len(panel.series) > 1:
        rows = legend_above(axes, fontsize=8)
    axes.set_xlabel("step")
    figure.align_ylabels()
    figure.set_figheight(height * len(panels) + 0.17 * rows)
    return svg(figure)


def draw(axes, panel: Panel, most: int):
  """Draws the lines of a panel with at most `most` points each on Matplotlib axes."""
  from matplotlib import ticker

  names = [f" {line.name[:MAX_NAME]}" for line in panel.series[:MAX_LEGEND]]
  unnamed = len(panel.series) - len(names)
  names += ["_"] * unnamed  # not in the legend
  for line, name, style in zip(panel.series, names, styles(panel.series), strict=True):
    steps, values = thinned(line.steps, line.values, most=most)
    axes.plot(steps, values, label=name, linewidth=1.3, **style)
  if unnamed:
    axes.plot([], [], " ", label=f" and {unnamed} more")
  if panel.log and all((line.values > 0).all() for line in panel.series):
    axes.set_yscale("log")
    round_log_ticks(axes.yaxis)
  axes.xaxis.set_major_locator(ticker.MaxNLocator(5, integer=True))
  axes.xaxis.set_major_formatter("{x:,.0f}")
  if panel.percent:
    axes.yaxis.set_major_formatter(ticker.PercentFormatter(1))
  axes.set_ylabel(panel.label)
  axes.grid(alpha=0.2)


def round_log_ticks(axis):
  """Marks 1, 10, ... on a logarithmic Matplotlib axis, and more numbers on a short one."""
  from matplotlib import ticker

  low, high = sorted(axis.get_view_interval())
  locator = ticker.LogLocator(subs=(1,), numticks=7)
  if high < NARROWER * low:
    locator = ticker.MaxNLocator(5)
  elif high < NARROW * low:
    locator = ticker.LogLocator(subs=(1, 2, 5), numticks=7)
  axis.set_major_locator(locator)
  axis.set_minor_locator(ticker.NullLocator())
  axis.set_major_formatter("{x:g}")


def legend_above(axes, fontsize: int = 10) -> int:
  """Puts the legend above the axes, in as many columns as fit; returns the number of rows."""
  handles, names = axes.get_legend_handles_labels()
  if not names:
    return 0
  letters = axes.get_figure().get_figwidth() * 110 / fontsize
  letters_of_column = max(map(len, names)) + 6
  columns = max(1, min(4, len(names), int(letters // letters_of_column)))
  place = dict(loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.3)
  axes.legend(handles, names, **place, ncols=columns, frameon=False, fontsize=fontsize)
  return -(-len(names) // columns)


def styles(series: Sequence[Series]) -> list[dict]:
  """A colour for each group and a dash for each line of a group, so that all lines look different.

  Lines of no group have a colour each.
  """
  dashes = ("-", "--", ":", "-.")
  lines_of_group = collections.Counter()
  result = []
  for line in series:
    colour = line.group
    dash = lines_of_group[line.group]
    if colour is None:
      colour = lines_of_group[line.group]
      dash = 0
    dash += colour // 10
    lines_of_group[line.group] += 1
    style = dict(color=f"C{colour % 10}", linestyle=dashes[dash % 4], marker=None, markersize=3)
    if line.dots or len(line.steps) == 1:
      style["marker"] = "o"
    result.append(style)
  return result


def thinned(steps: np.ndarray, values: np.ndarray, *, most: int) -> tuple[np.ndarray, np.ndarray]:
  """About `most` points at most: the least and the greatest value of each stretch of steps."""
  if len(steps) <= most:
    return steps, values
  bounds = np.linspace(0, len(steps), max(most // 2, 1) + 1).astype(int)
  kept = {0, len(steps) - 1}
  for first, end in itertools.pairwise(bounds):
    kept |= {first + int(values[first:end].argmin()), first + int(values[first:end].argmax())}
  rows = sorted(kept)
  return steps[rows], values[rows]


def calibration(probability: np.ndarray, accuracy: np.ndarray, images: np.ndarray) -> bytes:
  """A reliability diagram, as SVG.

  Args:
    probability, accuracy: (M,) means over the images of each bin.
    images: (M,) numbers of images, shown as the area of the dots.
  """
  import matplotlib
  from matplotlib.figure import Figure
  from matplotlib.ticker import PercentFormatter

  with matplotlib.rc_context(RC):
    figure = Figure(figsize=(3.4, 3.2))
    figure.subplots_adjust(left=0.2, right=0.95, top=0.95, bottom=0.17)
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color=INK, linewidth=1, linestyle=":")
    axes.plot(probability, accuracy, color="C0", linewidth=1)
    axes.scatter(probability, accuracy, s=8 + 150 * images / images.max(), color="C0", alpha=0.7)
    axes.set(xlabel="probability", ylabel="accuracy", xlim=(-0.03, 1.06), ylim=(-0.03, 1.06))
    for axis in (axes.xaxis, axes.yaxis):
      axis.set_major_formatter(PercentFormatter(1))
    axes.grid(alpha=0.2)
    return svg(figure)


def matrix(shares: np.ndarray) -> bytes:
  """Shares between 0 and 1 as a picture, as SVG; (classes, classes)."""
  import matplotlib
  from matplotlib.figure import Figure
  from matplotlib.ticker import PercentFormatter

  with matplotlib.rc_context(RC):
    figure = Figure(figsize=(5, 4.4))
    figure.subplots_adjust(left=0.14, right=0.97, top=0.97, bottom=0.12)
    axes = figure.subplots()
    image = axes.imshow(shares, vmin=0, vmax=1, cmap="viridis", interpolation="nearest")
    figure.colorbar(image, format=PercentFormatter(1))
    axes.set(xlabel="prediction, number of the class", ylabel="label, number of the class")
    return svg(figure)


def svg(figure) -> bytes:
  """A Matplotlib figure as SVG without metadata; its ink is light on dark screens."""
  from matplotlib.backends.backend_svg import FigureCanvasSVG

  stream = io.StringIO()
  figure.set_dpi(DPI)
  with warnings.catch_warnings():
    warnings.filterwarnings("ignore", message="Glyph .* missing from font")
    FigureCanvasSVG(figure).print_svg(stream, metadata=WITHOUT_METADATA)
  text = stream.getvalue()
  begin = text.index("<svg")
  end = text.index(">", begin) + 1
  return (text[begin:end] + STYLE + text[end:].replace(INK, "var(--ink)")).encode()


def save(figure, path: Path):
  """Writes a Matplotlib figure in the format of the path's suffix: PNG or SVG."""
  import matplotlib

  form = path.suffix.removeprefix(".")
  with warnings.catch_warnings(), matplotlib.rc_context({"font.sans-serif": fonts()}):
    warnings.filterwarnings("ignore", "Glyph .* missing from")  # in text not made by `label`
    with files.atomic_write(path) as partial:
      figure.savefig(partial, format=form, dpi=PNG_DPI)
