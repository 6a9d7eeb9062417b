"""Every kind of image file is decoded to the right RGB."""

import io
import struct

import cv2
import numpy as np
import pytest
import simplejpeg
from PIL import ExifTags, Image, ImageOps

from tests.data.pictures import (
  CAP,
  assert_near,
  decode,
  naive_rgb,
  picture,
  png16,
  saved,
  stored,
  whole,
)
from tests.data.tiff import tiff
from vit_jax.data import image_files, images, jpeg
from vit_jax.extras.preparation import quality


def coloured(indices, colours, **options):
  """A palette image of one row."""
  image = Image.fromarray(np.array([indices], np.uint8)).convert("P")
  image.putpalette([value for colour in colours for value in colour])
  return saved(image, options.pop("file_format", "PNG"), **options)


RED, GREEN, BLUE, WHITE = [255, 0, 0], [0, 255, 0], [0, 0, 255], [255] * 3
PIXELS = picture()
ARRAY = lambda *pixels: np.array([pixels], np.uint8)
EXACT = {
  "png": (saved(PIXELS, "PNG"), PIXELS),
  "webp": (saved(PIXELS, "WEBP", lossless=True), PIXELS),
  "png of one bit": (saved(np.eye(9, dtype=bool), "PNG"), np.stack([np.eye(9) * 255] * 3, -1)),
  "palette": (coloured([0, 1, 2], [RED, GREEN, BLUE]), [[RED, GREEN, BLUE]]),
  "transparent colour of a palette": (
    coloured([0, 1, 2], [RED, GREEN, BLUE], transparency=1),
    [[RED, WHITE, BLUE]],
  ),
  "transparent gif": (
    coloured([0, 1], [RED, GREEN], transparency=1, file_format="GIF"),
    [[RED, WHITE]],
  ),
  "alpha": (saved(ARRAY([200, 100, 0, 255], [9, 9, 9, 0]), "PNG"), [[[200, 100, 0], WHITE]]),
  "half of alpha": (saved(ARRAY([200, 100, 0, 51]), "PNG"), [[[244, 224, 204]]]),
  "webp with alpha": (
    saved(ARRAY([200, 100, 0, 255], [9, 9, 9, 0]), "WEBP", lossless=True),
    [[[200, 100, 0], WHITE]],
  ),
  "grey with alpha": (saved(ARRAY([80, 255], [80, 0]), "PNG"), [[[80] * 3, WHITE]]),
  "transparent colour": (
    saved(ARRAY([1, 2, 3], [40, 50, 60]), "PNG", transparency=(1, 2, 3)),
    [[WHITE, [40, 50, 60]]],
  ),
}


@pytest.mark.parametrize("kind", EXACT)
def test_colours_palettes_and_transparency_on_white(kind):
  data, wanted = EXACT[kind]
  np.testing.assert_array_equal(decode(data), wanted)


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"keep_rgb": True}])
def test_jpeg(options):
  data = saved(PIXELS, "JPEG", quality=98, subsampling=0, **options)
  assert_near(decode(data), PIXELS, tolerance=6)


@pytest.mark.parametrize("file_format", ["PNG", "JPEG"])
def test_grey_is_replicated(file_format):
  grey = PIXELS[..., 0]
  out = decode(saved(Image.fromarray(grey), file_format, quality=98))
  assert_near(out, np.stack([grey] * 3, -1), tolerance=4)
  np.testing.assert_array_equal(out[..., 0], out[..., 2])


def test_of_several_images_the_first_is_read():
  first, second = (Image.fromarray(picture(seed=seed)).quantize(64) for seed in (0, 1))
  data = saved(first, "GIF", save_all=True, append_images=[second])
  np.testing.assert_array_equal(decode(data), np.asarray(first.convert("RGB")))
  pages = [picture(seed=seed) for seed in range(3)]
  np.testing.assert_array_equal(decode(tiff(*pages)), pages[0])


@pytest.mark.parametrize("channels", [(), (3,)])
def test_16_bits_are_scaled_not_clipped(channels):
  ramp = np.linspace(0, 65535, 64).reshape(8, 8, *(1 for _ in channels))
  samples = np.broadcast_to(ramp, (8, 8, *channels)).astype(np.uint16)
  out = decode(png16(samples))
  wanted = samples / 257
  wanted = wanted if channels else np.stack([wanted] * 3, -1)
  assert np.abs(out - wanted).max() <= 1
  assert (out.min(), out.max()) == (0, 255)


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


LOSSLESS = {"WEBP": {"lossless": True}, "JPEG": {"quality": 98, "subsampling": 0}}
LOSSLESS["AVIF"] = {"quality": 98, "subsampling": "4:4:4"}


@pytest.mark.parametrize("file_format", ["JPEG", "PNG", "WEBP", "AVIF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied(file_format, orientation):
  upright, exif = picture(16, 24), Image.Exif()
  exif[ExifTags.Base.Orientation] = orientation
  options = LOSSLESS.get(file_format, {})
  data = saved(stored(upright, orientation), file_format, exif=exif.tobytes(), **options)
  assert_near(decode(data), upright, tolerance=10 if file_format in ("JPEG", "AVIF") else 0)
  assert_near(whole(data, size=24), cv2.resize(upright, (24, 24)), tolerance=10)


@pytest.mark.parametrize("deflate", [False, True])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_orientation_of_a_tiff_is_applied_once(orientation, deflate):
  upright = picture(16, 24)
  out = decode(tiff(stored(upright, orientation), deflate=deflate, t274=orientation))
  np.testing.assert_array_equal(out, upright)


def segment(marker: int, content: bytes) -> bytes:
  return struct.pack(">BBH", 0xFF, marker, len(content) + 2) + content


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
  data = saved(stored(upright, 6), "JPEG", quality=98, subsampling=0)
  directory = struct.pack("<HHHIHHI", 1, 0x0112, 3, 1, 6, 0, 0)
  content = b"II*\0" + struct.pack("<I", 8 + gap) + bytes(gap) + directory
  data = data[:2] + before + segment(0xE1, b"Exif\0\0" + content) + data[2:]
  assert_near(decode(data), upright, tolerance=8)
  expected = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))))
  assert_near(decode(data), expected, tolerance=2)


def test_what_follows_the_first_scan_is_no_exif():
  data = saved(PIXELS, "JPEG", quality=98, subsampling=0)
  content = b"II*\0" + struct.pack("<IHHHIHHI", 8, 1, 0x0112, 3, 1, 6, 0, 0)
  assert jpeg.exif(data[:-2] + segment(0xE1, b"Exif\0\0" + content) + data[-2:]) == b""


def test_broken_exif_does_not_cost_the_image():
  data = saved(PIXELS, "JPEG", quality=98, subsampling=0)
  rubbish = b"Exif\0\0" + b"II*\0\xff\xff\xff\x7f" + b"\1" * 20
  assert_near(decode(data[:2] + segment(0xE1, rubbish) + data[2:]), PIXELS, tolerance=6)


def test_arrays_pass_through():
  assert images.as_rgb(PIXELS, max_pixels=CAP) is PIXELS
  for grey in (PIXELS[..., 0], PIXELS[..., :1]):
    out = images.as_rgb(np.ascontiguousarray(grey), max_pixels=CAP)
    np.testing.assert_array_equal(out, np.stack([PIXELS[..., 0]] * 3, -1))


@pytest.mark.parametrize(
  "pixels", [np.zeros((4, 4, 3), np.float32), np.zeros((4, 4, 2), np.uint8), np.zeros(4, np.uint8)]
)
def test_other_arrays_are_refused(pixels):
  with pytest.raises(images.BadImage, match=r"uint8 \(H, W\)"):
    images.as_rgb(pixels, max_pixels=CAP)


@pytest.mark.parametrize(
  "file_format", ["JPEG", "PNG", "WEBP", "GIF", "AVIF", "TIFF", "BMP", "PPM"]
)
def test_the_format_is_told_by_the_content(file_format):
  data = saved(PIXELS, file_format)
  assert quality.format_of(data) == file_format
  assert file_format in image_files.SUFFIXES.values()
