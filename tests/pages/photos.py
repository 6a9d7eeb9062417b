"""Draws images of two classes into the folder it is started in, with the standard library alone.

photos/cat, photos/dog and more_photos hold discs and squares; unsorted and the files a.png
and b.png are of both. my.jpg is a PNG: files are read by their content.
"""

import pathlib
import random
import struct
import zlib

SIDE = 48
COLOURS = {"cat": (230, 140, 40), "dog": (40, 90, 200)}


def main():
  """Draws them."""
  draw = random.Random(0)
  for folder, images in (("photos", 20), ("more_photos", 4)):
    for name in ("cat", "dog"):
      for i in range(images):
        write(pathlib.Path(folder, name, f"{i}.png"), picture(name, draw))
  for i, name in enumerate(("cat", "dog", "dog")):
    write(pathlib.Path("unsorted", f"{i}.png"), picture(name, draw))
  write(pathlib.Path("a.png"), picture("cat", draw))
  write(pathlib.Path("b.png"), picture("dog", draw))
  write(pathlib.Path("my.jpg"), picture("cat", draw))


def picture(name: str, draw: random.Random) -> list[bytes]:
  """Rows of RGB pixels: an orange disc for a cat, a blue square for a dog, anywhere."""
  x, y, radius = draw.randint(14, 34), draw.randint(14, 34), draw.randint(6, 12)
  shape, ground = bytes(COLOURS[name]), draw.randbytes(3)
  inside = {
    "cat": lambda row, column: (row - y) ** 2 + (column - x) ** 2 < radius**2,
    "dog": lambda row, column: max(abs(row - y), abs(column - x)) < radius,
  }[name]
  pixel = lambda row, column: shape if inside(row, column) else ground
  return [b"".join(pixel(row, column) for column in range(SIDE)) for row in range(SIDE)]


def write(path: pathlib.Path, rows: list[bytes]):
  """Writes a PNG file of 8-bit RGB."""
  path.parent.mkdir(parents=True, exist_ok=True)
  header = struct.pack(">IIBBBBB", SIDE, len(rows), 8, 2, 0, 0, 0)
  data = zlib.compress(b"".join(b"\0" + row for row in rows))
  parts = ((b"IHDR", header), (b"IDAT", data), (b"IEND", b""))
  path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts))


def chunk(kind: bytes, data: bytes) -> bytes:
  """A chunk of a PNG file."""
  return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


if __name__ == "__main__":
  main()
