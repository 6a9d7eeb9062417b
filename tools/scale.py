"""Writes the page on scale: what a run of ViT-g on 2,048 chips needs, by formulas.

python tools/scale.py --output docs/scale.md

The step's time and memory are those of `vit-jax compile-check`, which the page names. The writes of
a checkpoint are planned for 2,048 simulated devices, as a run plans them.

Exit status: 0 done; 2 wrong usage, or the folder cannot be written to; 1 the disk fails.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from vit_jax.config.tool_flags import ToolFlags, ending, folder, path
from vit_jax.process import console

# "Scaling Vision Transformers" (arXiv 2106.04560), Table 2.
VIT_G = {"width": 1408, "depth": 40, "mlp_dim": 6144, "heads": 16}
RECIPE = "configs/vit_h14_jft.py"
TOPOLOGY = "v4:8x16x16"
CHIPS, CHIPS_A_HOST, BATCH, FSDP = 2048, 4, 32_768, 16
HOSTS = CHIPS // CHIPS_A_HOST
WORDS = [
  *(f"--config.model.{key}={value}" for key, value in VIT_G.items()),
  "--config.model.scan=true",
  f"--config.batch_size={BATCH}",
  f"--config.mesh.fsdp={FSDP}",
]
# By `vit-jax compile-check` with libtpu 0.0.51.
STEP = 0.2365  # seconds, without communication
MFU, PEAK, MEMORY = 0.39, 11.47, 32.0  # of the peak FLOP/s; GiB of a device
MOVED = 5.2  # GiB of results that a device gets from others

JPEG = 100_000  # bytes of an image
DECODED = 1159  # images/s that a core decodes (docs/data.md)
ANSWER = 0.05  # seconds that a bucket takes to answer
THREADS, REQUESTS = 16, 4  # of `config.data.threads`; requests under way for each
FILES, CLASSES = 14_197_122, 21_841  # of ImageNet-21k
LISTING = 16  # requests at once
LISTS = CLASSES + FILES // 1000  # requests, at most: each has up to 1,000 names of one folder

# 419 unexpected interruptions in 54 days on 16,384 GPUs: "The Llama 3 Herd of Models"
# (arXiv 2407.21783), Section 3.3.4.
CHIP_HOURS = 54 * 24 * 16_384 / 419
RESTART = 600.0  # seconds from a failure to the next step: a new slice, start-up, compilation
BLOCKED = 1.0  # seconds for which the steps wait until a state is copied from the devices
INTERVALS = (100, 500, 1000, 2000, 5000, 20_000)  # steps between saves


def goodput(interval: float, *, blocked: float, restart: float, between: float) -> float:
  """The fraction of the time that is spent on steps that count.

  Failures are independent of each other and of what the run does (Daly, "A higher order estimate of
  the optimum checkpoint interval for restart dumps", 2006, equation 20).

  Args:
    interval: seconds of steps between two saves.
    blocked: seconds that a save delays the steps.
    restart: seconds from a failure to the first step after it.
    between: mean seconds between two failures.
  """
  spent = between * math.exp(restart / between) * math.expm1((interval + blocked) / between)
  return interval / spent


def best_interval(*, blocked: float, between: float) -> float:
  """The seconds of steps between two saves that lose least, to first order (Young, 1974)."""
  return math.sqrt(2 * blocked * between)


class Writes(NamedTuple):
  """What the processes write of one checkpoint.

  Attributes:
    total: bytes of the arrays.
    largest: bytes of the process that writes most.
    pieces: pieces of arrays that the processes write together.
  """

  total: int
  largest: int
  pieces: int


class Array(NamedTuple):
  """What `storage.arrays` needs to plan the writing of an array."""

  shape: tuple[int, ...]
  dtype: np.dtype
  sharding: object

  @property
  def size(self) -> int:
    """Number of elements."""
    return math.prod(self.shape)

  @property
  def nbytes(self) -> int:
    """Bytes of the whole array."""
    return self.size * self.dtype.itemsize


def writes(arrays_by_name: Mapping[str, Array], processes: int) -> Writes:
  """What `storage.arrays` lets processes with consecutive, equally many devices write."""
  from vit_jax.storage import arrays

  plans = arrays.plans(arrays_by_name)
  written = np.zeros(processes, np.int64)
  pieces = 0
  for name, array in arrays_by_name.items():
    plan = plans[name]
    devices = array.sharding.device_set
    of_device = {device: i for i, device in enumerate(sorted(devices, key=lambda x: x.id))}
    order = arrays.in_turn(arrays.copies_of(array), processes)
    holders = {}
    for device, index in array.sharding.devices_indices_map(array.shape).items():
      holders.setdefault(str(index), []).append(of_device[device])
    nbytes = math.prod(plan.chunk) * array.dtype.itemsize
    for held in holders.values():
      held.sort()
      for piece in range(plan.parts):
        device = held[order[(plan.first + piece) % len(order)]]
        written[device * processes // len(devices)] += nbytes
        pieces += 1
  return Writes(sum(x.nbytes for x in arrays_by_name.values()), int(written.max()), pieces)


def planned() -> Writes:
  """What is written of a state of ViT-g; simulates all devices."""
  import jax

  jax.config.update("jax_platforms", "cpu")
  jax.config.update("jax_num_cpu_devices", CHIPS)
  from vit_jax import recipes
  from vit_jax.extras.experiments import step_program
  from vit_jax.storage.tree import named

  config = recipes.resolve(RECIPE, WORDS)
  state = step_program.planned(config, jax.devices()).abstract
  leaves = named(vars(state))
  return writes({k: Array(x.shape, x.dtype, x.sharding) for k, x in leaves.items()}, HOSTS)


def page(found: Writes) -> str:
  """The page as Markdown."""
  from vit_jax.devices.watchdog import MAX_PERIOD
  from vit_jax.extras.experiments.studies.report import markdown

  between = CHIP_HOURS * 3600 / CHIPS
  lines = [
    BEGIN.format(
      command=" ".join(["vit-jax compile-check", f"--config={RECIPE}", f"--topology={TOPOLOGY}"]),
      words=" ".join(WORDS),
      step=STEP * 1000,
      mfu=f"{MFU:.0%}",
      peak=PEAK,
      memory=MEMORY,
      moved=MOVED,
    ),
    markdown([["images", "all", "a host"], *input_rows()]),
    CHECKPOINTS.format(
      total=found.total / 1e9,
      largest=found.largest / 1e6,
      pieces=found.pieces,
      held=found.total * CHIPS_A_HOST / FSDP / 1e9,
      read=found.total * CHIPS / FSDP / 1e12,
    ),
    START.format(
      files=FILES,
      classes=CLASSES,
      seconds=LISTS * ANSWER / LISTING,
      requests=LISTS * HOSTS / 1e6,
      index=16 * FILES / 1e6,
      tars=FILES * JPEG / 1e12,
    ),
    FAILURES.format(
      hours=between / 3600,
      chip_hours=CHIP_HOURS,
      restart=RESTART / 60,
      blocked=BLOCKED,
      alone=-math.expm1(-RESTART / between),
      best=best_interval(blocked=BLOCKED, between=between) / STEP,
      period=MAX_PERIOD,
      beats=2 * HOSTS / MAX_PERIOD,
    ),
    markdown([["steps between saves", "minutes", "goodput"], *goodput_rows(between)]),
    "",
  ]
  return "\n".join(lines)


def input_rows() -> list[list[str]]:
  """What the input must deliver, over all hosts and on one."""
  images = BATCH / STEP
  return [
    ["images/s", f"{images:,.0f}", f"{images / HOSTS:,.0f}"],
    [
      f"from a bucket, at {JPEG // 1000} KB each",
      f"{images * JPEG / 1e9:,.1f} GB/s",
      f"{images * JPEG / HOSTS / 1e6:,.0f} MB/s",
    ],
    ["cores that decode", f"{images / DECODED:,.0f}", f"{images / DECODED / HOSTS:,.2f}"],
    [
      f"requests under way, at {ANSWER * 1000:.0f} ms each",
      f"{images * ANSWER:,.0f}",
      f"{images * ANSWER / HOSTS:,.0f} of {THREADS * REQUESTS}",
    ],
  ]


def goodput_rows(between: float) -> list[list[str]]:
  """Goodput by the number of steps between saves."""
  options = dict(blocked=BLOCKED, restart=RESTART, between=between)
  return [
    [f"{steps:,}", f"{steps * STEP / 60:.1f}", f"{goodput(steps * STEP, **options):.1%}"]
    for steps in INTERVALS
  ]


BEGIN = """# ViT-g on 2,048 chips

None of this was run. It is computed for ViT-g/14 of [Scaling Vision
Transformers](https://arxiv.org/abs/2106.04560) on a slice of 2,048 TPU v4, 512 hosts of 4 chips,
which `vit_jax` [compiles for](tpu.md#before-renting-does-it-fit):

<!-- not run: downloads libtpu, and takes minutes -->
```bash
{command} \\
  {words}
```

A step has 32,768 images of 224 pixels. By the compiler it takes {step} ms without communication
(MFU {mfu}), and {peak} of {memory} GiB. Each chip moves {moved} GiB in it, so the real step is
longer, and needs less of what follows.

## Input
"""

CHECKPOINTS = """
Decoding needs a small part of a host, also [with RandAugment](data.md#what-augmentation-costs).

## Checkpoints

A checkpoint has {total:.1f} GB: parameters and two moments. It is split into {pieces:,} pieces, and
every process writes its own, at most {largest:.0f} MB, in the background: steps wait only until the
state is copied from the chips. Then the first process joins the indices of 512 databases, and
renames the folder. At a restart each host reads what its chips hold, {held:.1f} GB; all hosts
together read {read:.1f} TB, and each checks the sums of a 512th.
"""

START = """## Start

| data in a bucket, as many images as ImageNet-21k | before the first step, on each host |
|---|---|
| `tfds:` | lists one folder; the index of records takes {index:,.0f} MB when all files are open |
| `folder:` | {files:,} names in {classes:,} folders: up to {seconds:.0f} s at 50 ms a request |
| `wds:` | reads all tar files once, {tars:.1f} TB |

Use `tfds:` ([how to make it](data.md#make-a-dataset-of-many-images)): for `folder:`, all hosts
together send up to {requests:.0f} million requests."""

FAILURES = """
## Failures

On 16,384 GPUs, [419 unexpected interruptions in 54 days](https://arxiv.org/abs/2407.21783) are one
in {chip_hours:,.0f} hours of a GPU. If chips fail as often, 2,048 of them fail every {hours:.1f}
hours. Goodput is the fraction of the time spent on steps that count, if a restart takes
{restart:.0f} minutes and a save delays the steps by {blocked:.0f} s (both assumed). The restart
alone costs {alone:.1%}. About {best:,.0f} steps between saves
(`config.checkpoint.every.steps`) lose least. Each host writes a heartbeat every
{period:.0f} s and lists those of all, {beats:.0f} requests/s together.
"""


def main(arguments: list[str] | None = None):
  """Writes the page; see the exit status above."""
  flags = ToolFlags("scale", __doc__, prog="python tools/scale.py")
  flags.add_argument("--output", type=path, required=True, help="the file, docs/scale.md")
  args = flags.parse_args(arguments)
  with ending("scale"):
    folder(args.output.parent, "--output")
    args.output.write_text(page(planned()), encoding="utf-8")


if __name__ == "__main__":
  console.of_tool()
  main()
