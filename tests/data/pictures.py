"""Images for tests, and their expected pixels."""

import io
import struct
import zlib

import cv2
import numpy as np
from PIL import Image

from vit_jax.data import images

CAP = 10**6
AREA, ASPECT = (0.05, 1.0), (3 / 4, 4 / 3)


def picture(height=40, width=56, *, seed=0) -> np.ndarray:
  """A smooth colour image, which JPEG changes by only a few grey levels."""
  rng = np.random.default_rng(seed)
  small = rng.integers(0, 256, (4, 4, 3), dtype=np.uint8)
  return np.ascontiguousarray(cv2.resize(small, (width, height), interpolation=cv2.INTER_CUBIC))


def saved(image: Image.Image, file_format: str, **options) -> bytes:
  stream = io.BytesIO()
  image.save(stream, file_format, **options)
  return stream.getvalue()


def decode(data: bytes) -> np.ndarray:
  return images.decode(data, max_pixels=CAP)


def assert_near(got: np.ndarray, wanted: np.ndarray, *, tolerance: int) -> None:
  assert got.dtype == np.uint8
  assert got.shape == wanted.shape
  assert np.abs(got.astype(int) - wanted.astype(int)).max() <= tolerance


def png16(samples: np.ndarray) -> bytes:
  """A 16-bit PNG, grey (H, W) or RGB (H, W, 3), which Pillow cannot write."""
  height, width = samples.shape[:2]
  colour = 2 if samples.ndim == 3 else 0
  rows = samples.astype(">u2").reshape(height, -1)
  raw = b"".join(b"\0" + row.tobytes() for row in rows)

  def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

  header = struct.pack(">IIBBBBB", width, height, 16, colour, 0, 0, 0)
  return (
    b"\x89PNG\r\n\x1a\n"
    + chunk(b"IHDR", header)
    + chunk(b"IDAT", zlib.compress(raw))
    + chunk(b"IEND", b"")
  )


def without_adobe_marker(data: bytes) -> bytes:
  at = data.index(b"\xff\xee")
  return data[:at] + data[at + 2 + int.from_bytes(data[at + 2 : at + 4], "big") :]


def encodings() -> dict[str, bytes]:
  image = Image.fromarray(picture(64, 80))
  return {
    "jpeg": saved(image, "JPEG"),
    "progressive": saved(image, "JPEG", progressive=True),
    "png": saved(image, "PNG"),
    "webp": saved(image, "WEBP"),
    "cmyk": saved(image.convert("CMYK"), "JPEG"),
  }


def see(data: bytes, *, training: bool, max_pixels: int = CAP, seed: int = 0) -> np.ndarray:
  if training:
    return images.train_image(
      data,
      rng=np.random.default_rng(seed),
      size=16,
      area=AREA,
      aspect=ASPECT,
      flip=True,
      max_pixels=max_pixels,
    )
  return images.evaluate_image(data, size=16, resize=0, max_pixels=max_pixels)


def naive_rgb(cmyk: np.ndarray) -> np.ndarray:
  """The RGB colours of (..., 4) ink amounts, 255 = full ink."""
  ink = cmyk.astype(float) / 255
  return np.rint(255 * (1 - ink[..., :3]) * (1 - ink[..., 3:]))
