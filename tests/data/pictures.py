"""Images for tests, and their expected pixels."""

import functools
import io
import struct
import zlib

import cv2
import numpy as np
from PIL import Image

from tests.data.tiff import tiff
from vit_jax.data import images

CAP = 10**6
AREA, ASPECT = (0.05, 1.0), (3 / 4, 4 / 3)


def picture(height=40, width=56, *, seed=0) -> np.ndarray:
  """A smooth colour image, which JPEG changes by only a few grey levels."""
  rng = np.random.default_rng(seed)
  small = rng.integers(0, 256, (4, 4, 3), dtype=np.uint8)
  return np.ascontiguousarray(cv2.resize(small, (width, height), interpolation=cv2.INTER_CUBIC))


def saved(image: Image.Image | np.ndarray, file_format: str, **options) -> bytes:
  image = Image.fromarray(image) if isinstance(image, np.ndarray) else image
  stream = io.BytesIO()
  image.save(stream, file_format, **options)
  return stream.getvalue()


def decode(data: bytes) -> np.ndarray:
  return images.decode(data, max_pixels=CAP)


def crop(image, *, seed=0, size=16, area=AREA, aspect=ASPECT, flip=True, max_pixels=CAP):
  """A training crop."""
  rng = np.random.default_rng(seed)
  return images.train_image(
    image, rng=rng, size=size, area=area, aspect=aspect, flip=flip, max_pixels=max_pixels
  ).pixels


def whole(image, *, size, aspect=1.5):
  """A training crop of the whole image."""
  return crop(image, size=size, area=(1, 1), aspect=(aspect, aspect), flip=False)


def see(data: bytes, *, training: bool, max_pixels: int = CAP, seed: int = 0) -> np.ndarray:
  if training:
    return crop(data, seed=seed, max_pixels=max_pixels)
  return images.evaluate_image(data, size=16, resize=0, max_pixels=max_pixels)


def assert_near(got: np.ndarray, wanted: np.ndarray, *, tolerance: int) -> None:
  assert got.dtype == np.uint8
  assert got.shape == wanted.shape
  assert np.abs(got.astype(int) - wanted.astype(int)).max() <= tolerance


def stored(upright: np.ndarray, orientation: int) -> np.ndarray:
  """The pixels in a file, for each orientation of the Exif standard."""
  return np.ascontiguousarray(
    {
      1: upright,
      2: upright[:, ::-1],
      3: upright[::-1, ::-1],
      4: upright[::-1],
      5: upright.transpose(1, 0, 2),
      6: np.rot90(upright, 1),  # a viewer turns it clockwise
      7: upright[::-1, ::-1].transpose(1, 0, 2),
      8: np.rot90(upright, -1),
    }[orientation]
  )


def chunk(kind: bytes, body: bytes) -> bytes:
  """A chunk of a PNG."""
  return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(rows: list[bytes], *, width: int, depth: int, colour: int, more: bytes = b"") -> bytes:
  """A PNG of any kind; `more`: chunks before the pixels."""
  header = struct.pack(">IIBBBBB", width, len(rows), depth, colour, 0, 0, 0)
  pixels = chunk(b"IDAT", zlib.compress(b"".join(b"\0" + row for row in rows)))
  return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + more + pixels + chunk(b"IEND", b"")


def png16(samples: np.ndarray, more: bytes = b"") -> bytes:
  """A 16-bit PNG, grey (H, W) or RGB or with alpha (H, W, C), which Pillow cannot write."""
  colour = {1: 0, 2: 4, 3: 2, 4: 6}[samples.shape[2] if samples.ndim == 3 else 1]
  rows = [row.tobytes() for row in samples.astype(">u2")]
  return png(rows, width=samples.shape[1], depth=16, colour=colour, more=more)


@functools.cache
def encodings() -> dict[str, bytes]:
  """An image of 80 x 64 pixels in all kinds of files, {kind: bytes}."""
  pixels = picture(64, 80)
  image = Image.fromarray(pixels)
  return {
    "jpeg": saved(image, "JPEG"),
    "progressive": saved(image, "JPEG", progressive=True),
    "cmyk": saved(image.convert("CMYK"), "JPEG"),
    "png": saved(image, "PNG"),
    "webp": saved(image, "WEBP"),
    "tiff": tiff(pixels, rows=9),
    "tiff, the tags first": saved(image, "TIFF"),
    "tiff, tiles": tiff(pixels, tile=16, deflate=True),
    "tiff, jpeg": saved(image, "TIFF", compression="jpeg"),
    "tiff, lzw": saved(image, "TIFF", compression="tiff_lzw"),
    "bmp": saved(image, "BMP"),
    "ppm": saved(image, "PPM"),
    "plain ppm": b"P2 80 64 255 " + b" ".join(b"%d" % (i % 256) for i in range(80 * 64)),
  }


def naive_rgb(cmyk: np.ndarray) -> np.ndarray:
  """The RGB colours of (..., 4) ink amounts, 255 = full ink."""
  ink = cmyk.astype(float) / 255
  return np.rint(255 * (1 - ink[..., :3]) * (1 - ink[..., 3:]))
