"""Writes TIFF files of any layout, by the TIFF 6.0 specification; no library here can do it."""

import itertools
import struct
import zlib

import numpy as np

TYPES = {"H": 3, "I": 4}
BITS, COMPRESSION, PHOTOMETRIC, OFFSETS, ORIENTATION, SAMPLES = 258, 259, 262, 273, 274, 277
ROWS, COUNTS, PLANAR, TILE_WIDTH, TILE_HEIGHT, EXTRA, FORMAT = 278, 279, 284, 322, 323, 338, 339
TILE_OFFSETS, TILE_COUNTS = 324, 325
KINDS = {"u": 1, "i": 2, "f": 3}


def tiff(
  *pages, order="<", photometric=None, deflate=False, planar=False, rows=None, tile=0, **more
):
  """A file of the pages, arrays (H, W) or (H, W, C).

  Args:
    order: "<" or ">", of the bytes.
    photometric: 0: white is zero, 1: black is zero, 2: RGB, 5: CMYK; by default 1 or 2.
    deflate: whether it is compressed.
    planar: whether each channel is stored apart.
    rows: of a strip.
    tile: side of square tiles, instead of strips.
    more: t274=6 sets the tag 274; a list sets several values.
  """
  out, where = bytearray({"<": b"II*\0", ">": b"MM\0*"}[order] + bytes(4)), 4
  for page in pages:
    page = page[..., None] if page.ndim == 2 else page
    height, width, channels = page.shape
    size = page.dtype.itemsize
    layers = [page[..., [c]] for c in range(channels)] if planar else [page]
    parts = [part for layer in layers for part in cut(layer, rows or height, tile)]
    data = [part.astype(page.dtype.newbyteorder(order)).tobytes() for part in parts]
    data = [zlib.compress(one) for one in data] if deflate else data
    offsets = [len(out) + n for n in itertools.accumulate([0, *map(len, data[:-1])])]
    out += b"".join(data) + bytes(sum(map(len, data)) % 2)
    tags = {
      256: ("I", [width]),
      257: ("I", [height]),
      BITS: ("H", [8 * size] * channels),
      COMPRESSION: ("H", [8 if deflate else 1]),
      PHOTOMETRIC: ("H", [(2 if channels >= 3 else 1) if photometric is None else photometric]),
      SAMPLES: ("H", [channels]),
      PLANAR: ("H", [2 if planar else 1]),
      FORMAT: ("H", [KINDS[page.dtype.kind]] * channels),
    }
    colours = {5: 4}.get(photometric, 3 if channels >= 3 else 1)
    if channels > colours:
      tags[EXTRA] = ("H", [2] * (channels - colours))
    if tile:
      tags |= {TILE_WIDTH: ("I", [tile]), TILE_HEIGHT: ("I", [tile])}
      tags |= {TILE_OFFSETS: ("I", offsets), TILE_COUNTS: ("I", [len(one) for one in data])}
    else:
      tags |= {ROWS: ("I", [rows or height]), OFFSETS: ("I", offsets)}
      tags |= {COUNTS: ("I", [len(one) for one in data])}
    tags |= {int(key[1:]): ("I", np.atleast_1d(value)) for key, value in more.items()}
    struct.pack_into(f"{order}I", out, where, len(out))
    where = append_directory(out, tags, order)
  return bytes(out)


def cut(layer, rows, tile):
  """The strips of `rows` rows, or the tiles, padded with zeros."""
  if not tile:
    return [layer[top : top + rows] for top in range(0, len(layer), rows)]
  height, width = (-(-side // tile) * tile for side in layer.shape[:2])
  padded = np.zeros((height, width, layer.shape[2]), layer.dtype)
  padded[: layer.shape[0], : layer.shape[1]] = layer
  tops, lefts = range(0, height, tile), range(0, width, tile)
  return [padded[top : top + tile, left : left + tile] for top in tops for left in lefts]


def append_directory(out, tags, order):
  """Adds a directory of tags to the file; returns the place of the next directory's offset."""
  start = len(out)
  after = start + 2 + 12 * len(tags) + 4
  directory, values = struct.pack(f"{order}H", len(tags)), b""
  for tag, (kind, numbers) in sorted(tags.items()):
    packed = struct.pack(f"{order}{len(numbers)}{kind}", *numbers)
    if len(packed) > 4:
      packed, values = struct.pack(f"{order}I", after + len(values)), values + packed
    head = struct.pack(f"{order}HHI", tag, TYPES[kind], len(numbers))
    directory += head + packed.ljust(4, b"\0")
  out += directory + bytes(4) + values
  return after - 4
