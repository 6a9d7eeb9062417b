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
  without_adobe_marker,
)
from vit_jax.data import images, jpeg


def test_rgb_png_is_exact():
  pixels = picture()
  np.testing.assert_array_equal(decode(saved(Image.fromarray(pixels), "PNG")), pixels)


def test_webp_lossless_is_exact():
  pixels = picture()
  data = saved(Image.fromarray(pixels), "WEBP", lossless=True)
  np.testing.assert_array_equal(decode(data), pixels)


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"keep_rgb": True}])
def test_jpeg(options):
  pixels = picture()
  data = saved(Image.fromarray(pixels), "JPEG", quality=98, subsampling=0, **options)
  assert_near(decode(data), pixels, tolerance=6)


@pytest.mark.parametrize("file_format", ["PNG", "JPEG"])
def test_grey_is_replicated(file_format):
  grey = picture()[..., 0]
  out = decode(saved(Image.fromarray(grey), file_format, quality=98))
  assert_near(out, np.stack([grey] * 3, -1), tolerance=4)
  np.testing.assert_array_equal(out[..., 0], out[..., 2])


def test_one_bit_png_is_black_and_white():
  bits = picture()[..., 0] > 128
  out = decode(saved(Image.fromarray(bits), "PNG"))
  np.testing.assert_array_equal(out[..., 1], np.where(bits, 255, 0))


def test_palette():
  palette = [255, 0, 0, 0, 255, 0, 0, 0, 255]
  image = Image.fromarray(np.array([[0, 1, 2]], np.uint8)).convert("P")
  image.putpalette(palette)
  assert decode(saved(image, "PNG")).tolist() == [[[255, 0, 0], [0, 255, 0], [0, 0, 255]]]


def test_transparent_palette_entry_becomes_white():
  image = Image.fromarray(np.array([[0, 1, 2]], np.uint8)).convert("P")
  image.putpalette([255, 0, 0, 0, 255, 0, 0, 0, 255])
  data = saved(image, "PNG", transparency=1)
  assert decode(data).tolist() == [[[255, 0, 0], [255, 255, 255], [0, 0, 255]]]


def test_the_first_frame_of_a_gif():
  first, second = (Image.fromarray(picture(seed=seed)).quantize(64) for seed in (0, 1))
  data = saved(first, "GIF", save_all=True, append_images=[second])
  np.testing.assert_array_equal(decode(data), np.asarray(first.convert("RGB")))


def test_transparent_gif_becomes_white():
  image = Image.fromarray(np.array([[0, 1]], np.uint8)).convert("P")
  image.putpalette([255, 0, 0, 0, 255, 0])
  assert decode(saved(image, "GIF", transparency=1)).tolist() == [[[255, 0, 0], [255, 255, 255]]]


@pytest.mark.parametrize("orientation", [1, 6])
def test_avif(orientation):
  exif = Image.Exif()
  exif[ExifTags.Base.Orientation] = orientation
  data = saved(Image.fromarray(picture()), "AVIF", quality=98, subsampling="4:4:4", exif=exif)
  wanted = picture() if orientation == 1 else np.rot90(picture(), -1)
  assert_near(decode(data), wanted, tolerance=8)


def test_alpha_is_laid_on_white():
  rgba = np.array([[[200, 100, 0, 255], [200, 100, 0, 0], [200, 100, 0, 51]]], np.uint8)
  out = decode(saved(Image.fromarray(rgba), "PNG"))
  wanted = [[[200, 100, 0], [255, 255, 255], [244, 224, 204]]]
  assert_near(out, np.array(wanted), tolerance=1)


def test_webp_alpha_is_laid_on_white():
  rgba = np.array([[[200, 100, 0, 255], [9, 9, 9, 0]]], np.uint8)
  out = decode(saved(Image.fromarray(rgba), "WEBP", lossless=True))
  assert out.tolist() == [[[200, 100, 0], [255, 255, 255]]]


def test_grey_with_alpha_is_laid_on_white():
  image = Image.fromarray(np.array([[[80, 255], [80, 0]]], np.uint8))
  assert image.mode == "LA"
  assert decode(saved(image, "PNG")).tolist() == [[[80] * 3, [255] * 3]]


def test_colour_key_transparency_becomes_white():
  pixels = np.array([[[1, 2, 3], [40, 50, 60]]], np.uint8)
  data = saved(Image.fromarray(pixels), "PNG", transparency=(1, 2, 3))
  assert decode(data).tolist() == [[[255] * 3, [40, 50, 60]]]


@pytest.mark.parametrize("channels", [(), (3,)])
def test_16_bits_are_scaled_not_clipped(channels):
  ramp = np.linspace(0, 65535, 64).reshape(8, 8, *(1 for _ in channels))
  samples = np.broadcast_to(ramp, (8, 8, *channels)).astype(np.uint16)
  out = decode(png16(samples))
  wanted = samples / 257
  wanted = wanted if channels else np.stack([wanted] * 3, -1)
  assert np.abs(out - wanted).max() <= 1
  assert (out.min(), out.max()) == (0, 255)


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
  colours = simplejpeg.decode_jpeg_header(data)[2]
  assert colours == ("YCCK" if "ycck" in kind else "CMYK")
  assert_near(decode(data), naive_rgb(cmyk), tolerance=6)
  small = images.train_image(
    data,
    rng=np.random.default_rng(0),
    size=8,
    area=(1, 1),
    aspect=(1.5, 1.5),
    flip=False,
    max_pixels=CAP,
  )
  assert_near(small, cv2.resize(naive_rgb(cmyk).astype(np.uint8), (8, 8)), tolerance=8)


@pytest.mark.parametrize("file_format", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied(file_format, orientation):
  """`as_stored` has the pixels in the file, for each orientation of the Exif standard."""
  upright = picture(16, 24)
  as_stored = {
    1: upright,
    2: upright[:, ::-1],
    3: upright[::-1, ::-1],
    4: upright[::-1],
    5: upright.transpose(1, 0, 2),
    6: np.rot90(upright, 1),  # a viewer turns it clockwise
    7: upright[::-1, ::-1].transpose(1, 0, 2),
    8: np.rot90(upright, -1),
  }[orientation]
  exif = Image.Exif()
  exif[0x0112] = orientation
  lossless = {"WEBP": {"lossless": True}, "JPEG": {"quality": 98, "subsampling": 0}}
  data = saved(
    Image.fromarray(np.ascontiguousarray(as_stored)),
    file_format,
    exif=exif.tobytes(),
    **lossless.get(file_format, {}),
  )
  assert_near(decode(data), upright, tolerance=8 if file_format == "JPEG" else 0)
  trained = images.train_image(
    data,
    rng=np.random.default_rng(0),
    size=24,
    area=(1, 1),
    aspect=(1.5, 1.5),
    flip=False,
    max_pixels=CAP,
  )
  assert_near(trained, cv2.resize(upright, (24, 24)), tolerance=8)


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
  stored = Image.fromarray(np.ascontiguousarray(np.rot90(upright, 1)))
  data = saved(stored, "JPEG", quality=98, subsampling=0)
  directory = struct.pack("<HHHIHHI", 1, 0x0112, 3, 1, 6, 0, 0)
  tiff = b"II*\0" + struct.pack("<I", 8 + gap) + bytes(gap) + directory
  data = data[:2] + before + segment(0xE1, b"Exif\0\0" + tiff) + data[2:]
  assert_near(decode(data), upright, tolerance=8)
  expected = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))))
  assert_near(decode(data), expected, tolerance=2)


def test_what_follows_the_first_scan_is_no_exif():
  data = saved(Image.fromarray(picture()), "JPEG", quality=98, subsampling=0)
  tiff = b"II*\0" + struct.pack("<IHHHIHHI", 8, 1, 0x0112, 3, 1, 6, 0, 0)
  assert jpeg.orientation(data[:-2] + segment(0xE1, b"Exif\0\0" + tiff) + data[-2:]) == 1


def test_broken_exif_does_not_cost_the_image():
  pixels = picture()
  data = saved(Image.fromarray(pixels), "JPEG", quality=98, subsampling=0)
  rubbish = b"Exif\0\0" + b"II*\0\xff\xff\xff\x7f" + b"\1" * 20
  assert_near(decode(data[:2] + segment(0xE1, rubbish) + data[2:]), pixels, tolerance=6)


def test_arrays_pass_through():
  pixels = picture()
  assert images.as_rgb(pixels, max_pixels=CAP) is pixels
  for grey in (pixels[..., 0], pixels[..., :1]):
    out = images.as_rgb(np.ascontiguousarray(grey), max_pixels=CAP)
    np.testing.assert_array_equal(out, np.stack([pixels[..., 0]] * 3, -1))


@pytest.mark.parametrize(
  "pixels", [np.zeros((4, 4, 3), np.float32), np.zeros((4, 4, 2), np.uint8), np.zeros(4, np.uint8)]
)
def test_other_arrays_are_refused(pixels):
  with pytest.raises(images.BadImage, match=r"uint8 \(H, W\)"):
    images.as_rgb(pixels, max_pixels=CAP)
