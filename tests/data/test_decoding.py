"""Every kind of image file is decoded to the right RGB."""

import io
import struct

import cv2
import numpy as np
import pytest
import simplejpeg
from PIL import ExifTags, Image, ImageOps

from tests.data.pictures import CAP, assert_near, decode, naive_rgb, picture, saved, stored, whole
from tests.data.tiff import tiff
from vit_jax.data import image_files, images, jpeg
from vit_jax.extras.preparation import quality


def coloured(indices, colours, file_format="PNG", **options):
  """A palette image of one row."""
  image = Image.fromarray(np.array([indices], np.uint8)).convert("P")
  image.putpalette([value for colour in colours for value in colour])
  return saved(image, file_format, **options)


def segment(marker: int, content: bytes) -> bytes:
  return struct.pack(">BBH", 0xFF, marker, len(content) + 2) + content


def replicated(grey) -> np.ndarray:
  return np.stack([grey] * 3, -1)


def twelve_bits(samples):
  """A TIFF of (8, 8) samples."""
  first, second = samples.reshape(-1, 2).T
  packed = np.stack([first >> 4, (first & 15) << 4 | second >> 8, second & 255], -1)
  return tiff(packed.astype(np.uint8).reshape(8, 12), t256=8, t258=12)


def bmp_of_16_bits(*pixels):
  """A row of pixels, whose samples have 5, 6 and 5 bits."""
  header = struct.pack("<IiiHHIIiiII", 40, len(pixels), 1, 1, 16, 3, 0, 0, 0, 0, 0)
  masks = struct.pack("<III", 0xF800, 0x7E0, 0x1F)
  at = 14 + len(header) + len(masks)
  start = b"BM" + struct.pack("<IHHI", at + 4, 0, 0, at)
  return start + header + masks + struct.pack(f"<{len(pixels)}H", *pixels)


RED, GREEN, BLUE, WHITE, BLACK = [255, 0, 0], [0, 255, 0], [0, 0, 255], [255] * 3, [0] * 3
PIXELS = picture()
GREY = PIXELS[..., 0]
DARK = PIXELS // 20
WIDE = np.uint16(GREY) * 257
SAMPLES = np.linspace(0, 4095, 64).astype(np.uint16).reshape(8, 8)
ROW = lambda *pixels: np.array([pixels], np.uint8)
CLEAR = ROW([200, 100, 0, 255], [9, 9, 9, 0])
GIFS = [Image.fromarray(picture(seed=seed)).quantize(64) for seed in (0, 1)]
FINE = dict(quality=98, subsampling=0)
JPEG = saved(PIXELS, "JPEG", **FINE)
BROKEN_EXIF = segment(0xE1, b"Exif\0\0" + b"II*\0\xff\xff\xff\x7f" + b"\1" * 20)
# The name of a file: (its content, its pixels, by how many levels they may differ).
DECODED = {
  "png": (saved(PIXELS, "PNG"), PIXELS, 0),
  "grey png": (saved(GREY, "PNG"), replicated(GREY), 0),
  "png of one bit": (saved(np.eye(9, dtype=bool), "PNG"), replicated(np.eye(9) * 255), 0),
  "webp": (saved(PIXELS, "WEBP", lossless=True), PIXELS, 0),
  "jpeg": (JPEG, PIXELS, 6),
  "progressive jpeg": (saved(PIXELS, "JPEG", progressive=True, **FINE), PIXELS, 6),
  "jpeg of rgb": (saved(PIXELS, "JPEG", keep_rgb=True, **FINE), PIXELS, 6),
  "grey jpeg": (saved(GREY, "JPEG", quality=98), replicated(GREY), 4),
  "jpeg with broken exif": (JPEG[:2] + BROKEN_EXIF + JPEG[2:], PIXELS, 6),
  "palette": (coloured([0, 1, 2], [RED, GREEN, BLUE]), [[RED, GREEN, BLUE]], 0),
  "transparent colour of a palette": (
    coloured([0, 1, 2], [RED, GREEN, BLUE], transparency=1),
    [[RED, WHITE, BLUE]],
    0,
  ),
  "transparent gif": (coloured([0, 1], [RED, GREEN], "GIF", transparency=1), [[RED, WHITE]], 0),
  "alpha": (saved(CLEAR, "PNG"), [[[200, 100, 0], WHITE]], 0),
  "half of alpha": (saved(ROW([200, 100, 0, 51]), "PNG"), [[[244, 224, 204]]], 0),
  "webp with alpha": (saved(CLEAR, "WEBP", lossless=True), [[[200, 100, 0], WHITE]], 0),
  "grey with alpha": (saved(ROW([80, 255], [80, 0]), "PNG"), [[[80] * 3, WHITE]], 0),
  "transparent colour": (
    saved(ROW([1, 2, 3], [40, 50, 60]), "PNG", transparency=(1, 2, 3)),
    [[WHITE, [40, 50, 60]]],
    0,
  ),
  "gif of two images": (
    saved(GIFS[0], "GIF", save_all=True, append_images=GIFS[1:]),
    np.asarray(GIFS[0].convert("RGB")),
    0,
  ),
  "tiff of three pages": (tiff(PIXELS, picture(seed=1), picture(seed=2)), PIXELS, 0),
  "tiff whose white is 0": (tiff(255 - GREY, photometric=0), replicated(GREY), 0),
  "tiff of 16 bits whose white is 0": (tiff(65535 - WIDE, photometric=0), replicated(GREY), 0),
  "tiff of 12 bits": (twelve_bits(SAMPLES), replicated(SAMPLES >> 4), 0),
  "dark bmp of 16 bits": (bmp_of_16_bits(0, 1 << 5), [[BLACK, [0, 4, 0]]], 0),
  "bitmap of text": (b"P1\n# no image\n2 1\n0 1\n", [[WHITE, BLACK]], 0),
}
for mode in ("RGB", "L", "P", "1"):
  converted = Image.fromarray(PIXELS).convert(mode)
  DECODED[f"bmp, {mode}"] = (saved(converted, "BMP"), np.asarray(converted.convert("RGB")), 0)
for kind in ("PNG", "TIFF", "BMP", "PPM"):
  DECODED[f"dark {kind}"] = (saved(DARK, kind), DARK, 0)


@pytest.mark.parametrize("kind", DECODED)
def test_every_kind_of_file_has_the_right_colours_on_white(kind):
  data, wanted, tolerance = DECODED[kind]
  out = decode(data)
  assert_near(out, np.array(wanted), tolerance=tolerance)
  if "grey" in kind:
    np.testing.assert_array_equal(out[..., 0], out[..., 2])


def without_adobe_marker(data: bytes) -> bytes:
  at = data.index(b"\xff\xee")
  return data[:at] + data[at + 2 + int.from_bytes(data[at + 2 : at + 4], "big") :]


@pytest.mark.parametrize("kind", ["adobe cmyk", "adobe ycck", "plain cmyk"])
def test_cmyk_jpeg(kind):
  cmyk = np.zeros((32, 48, 4), np.uint8)
  cmyk[:16, :, 0], cmyk[16:, :, 1], cmyk[:, 24:, 3] = 220, 180, 90
  if kind == "adobe cmyk":  # Pillow, like Photoshop, stores the inverse and says so
    data = saved(Image.fromarray(cmyk, mode="CMYK"), "JPEG", quality=99, subsampling=0)
  elif kind == "adobe ycck":
    data = simplejpeg.encode_jpeg(255 - cmyk, quality=99, colorspace="CMYK")
  else:
    data = saved(Image.fromarray(255 - cmyk, mode="CMYK"), "JPEG", quality=99, subsampling=0)
    data = without_adobe_marker(data)
  assert simplejpeg.decode_jpeg_header(data)[2] == ("YCCK" if "ycck" in kind else "CMYK")
  assert_near(decode(data), naive_rgb(cmyk), tolerance=6)
  small = cv2.resize(naive_rgb(cmyk).astype(np.uint8), (8, 8))
  assert_near(whole(data, size=8), small, tolerance=8)


@pytest.mark.parametrize("factors", [(1, 4), (4, 2), (3, 1)])
def test_jpeg_with_chroma_sampled_in_a_rare_way(factors):
  """Such files are read by Pillow: the fast decoder does not know 4:4:1, 4x2 and the like."""
  data = bytearray(simplejpeg.encode_jpeg(picture(), colorsubsampling="444"))
  data[data.index(b"\xff\xc0") + 11] = factors[0] << 4 | factors[1]  # of the luminance
  data = bytes(data)
  wanted = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
  np.testing.assert_array_equal(decode(data), wanted)
  assert whole(data, size=8).shape == (8, 8, 3)


# --- orientation ---

# By format: how it is written, and by how many levels its pixels may differ.
TURNED = {
  "JPEG": (FINE, 10),
  "PNG": ({}, 0),
  "WEBP": (dict(lossless=True), 0),
  "AVIF": (dict(quality=98, subsampling="4:4:4"), 10),
  "TIFF": (dict(deflate=False), 0),
  "TIFF, deflate": (dict(deflate=True), 0),
}


@pytest.mark.parametrize("kind", TURNED)
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied(kind, orientation):
  upright, exif = picture(16, 24), Image.Exif()
  exif[ExifTags.Base.Orientation] = orientation
  options, tolerance = TURNED[kind]
  if kind.startswith("TIFF"):
    data = tiff(stored(upright, orientation), t274=orientation, **options)
  else:
    data = saved(stored(upright, orientation), kind, exif=exif.tobytes(), **options)
  assert_near(decode(data), upright, tolerance=tolerance)
  assert_near(whole(data, size=24), cv2.resize(upright, (24, 24)), tolerance=10)


@pytest.mark.parametrize(
  ("before", "gap"),
  [
    (segment(0xED, b"Photoshop 3.0\0" + b"Exif\0\0" + bytes(6000)), 0),
    (segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0" + b" " * 60_000), 0),
    (b"".join(segment(0xE4, bytes(65_000)) for _ in range(3)), 0),
    (b"\xff\xff\xff", 0),  # bytes that may precede every marker
    (segment(0xE1, b""), 0),
    (b"", 20_000),  # the directory follows a thumbnail
  ],
)
def test_exif_may_lie_anywhere_before_the_pixels(before, gap):
  upright = picture(16, 24)
  data = saved(stored(upright, 6), "JPEG", **FINE)
  directory = struct.pack("<HHHIHHI", 1, 0x0112, 3, 1, 6, 0, 0)
  content = b"II*\0" + struct.pack("<I", 8 + gap) + bytes(gap) + directory
  exif = segment(0xE1, b"Exif\0\0" + content)
  turned = data[:2] + before + exif + data[2:]
  assert_near(decode(turned), upright, tolerance=8)
  expected = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(turned))))
  assert_near(decode(turned), expected, tolerance=2)
  assert jpeg.exif(data[:-2] + exif + data[-2:]) == b""  # what follows the first scan is none


# --- pixels ---


def test_arrays_pass_through():
  assert images.as_rgb(PIXELS, max_pixels=CAP) is PIXELS
  for grey in (GREY, PIXELS[..., :1]):
    out = images.as_rgb(np.ascontiguousarray(grey), max_pixels=CAP)
    np.testing.assert_array_equal(out, replicated(GREY))


@pytest.mark.parametrize(
  "pixels", [np.zeros((4, 4, 3), np.float32), np.zeros((4, 4, 2), np.uint8), np.zeros(4, np.uint8)]
)
def test_other_arrays_are_refused(pixels):
  with pytest.raises(images.BadImage, match=r"uint8 \(H, W\)"):
    images.as_rgb(pixels, max_pixels=CAP)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF", "AVIF", "TIFF", "BMP", "PPM"])
def test_the_format_is_told_by_the_content(kind):
  assert quality.format_of(saved(PIXELS, kind)) == kind
  assert kind in image_files.SUFFIXES.values()
