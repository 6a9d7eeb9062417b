"""Every kind of image file comes out as the right RGB; crops and resizes are what they claim."""

import hashlib
import io
import struct
import zlib

import cv2
import hypothesis
import numpy as np
import pytest
import simplejpeg
from hypothesis import strategies as st
from PIL import Image

from vit_jax.data import images, jpeg

CAP = 10**6
AREA, ASPECT = (0.05, 1.0), (3 / 4, 4 / 3)


def picture(height=40, width=56, *, seed=0) -> np.ndarray:
  """A smooth colour image, which JPEG keeps to within a few grey levels."""
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


# --- formats ---


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


def naive_rgb(cmyk: np.ndarray) -> np.ndarray:
  """RGB of (..., 4) ink amounts, 255 = full ink."""
  ink = cmyk.astype(float) / 255
  return np.rint(255 * (1 - ink[..., :3]) * (1 - ink[..., 3:]))


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
  """The file holds the pixels that a viewer turns upright; written out from the Exif standard."""
  upright = picture(16, 24)
  as_stored = {
    1: upright,
    2: upright[:, ::-1],
    3: upright[::-1, ::-1],
    4: upright[::-1],
    5: upright.transpose(1, 0, 2),
    6: np.rot90(upright, 1),  # to be turned clockwise when shown
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


def test_broken_exif_does_not_cost_the_image():
  pixels = picture()
  data = saved(Image.fromarray(pixels), "JPEG", quality=98, subsampling=0)
  rubbish = b"Exif\0\0" + b"II*\0\xff\xff\xff\x7f" + b"\1" * 20
  segment = b"\xff\xe1" + struct.pack(">H", len(rubbish) + 2) + rubbish
  assert_near(decode(data[:2] + segment + data[2:]), pixels, tolerance=6)


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


# --- broken files ---


def encodings() -> dict[str, bytes]:
  image = Image.fromarray(picture(64, 80))
  return {
    "jpeg": saved(image, "JPEG"),
    "progressive": saved(image, "JPEG", progressive=True),
    "png": saved(image, "PNG"),
    "webp": saved(image, "WEBP"),
    "cmyk": saved(image.convert("CMYK"), "JPEG"),
  }


@pytest.mark.parametrize("kind", encodings())
@pytest.mark.parametrize("kept", [0.01, 0.3, 0.7, 0.95])
@pytest.mark.parametrize("training", [False, True])
def test_truncated_files_are_refused(kind, kept, training):
  data = encodings()[kind]
  with pytest.raises(images.BadImage):
    see(data[: int(kept * len(data))], training=training)


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


@pytest.mark.parametrize("cut", [1, 2, 3, 10])
def test_a_jpeg_short_of_a_few_bytes_is_refused_whatever_the_crop(cut):
  data = encodings()["jpeg"]
  for seed in range(30):
    with pytest.raises(images.BadImage, match="truncated"):
      see(data[:-cut], training=True, seed=seed)


@pytest.mark.parametrize(
  "data", [b"", b"\xff\xd8\xff", b"hello", b"GIF89a" + bytes(50), b"\x89PNG\r\n\x1a\n" + bytes(40)]
)
@pytest.mark.parametrize("training", [False, True])
def test_rubbish_is_refused(data, training):
  with pytest.raises(images.BadImage):
    see(data, training=training)


@pytest.mark.parametrize("file_format", ["GIF", "ICO", "TGA"])
def test_other_formats_are_refused(file_format):
  with pytest.raises(images.BadImage, match="JPEG, PNG, WebP, TIFF, BMP or PPM"):
    decode(saved(Image.fromarray(picture()), file_format))


@pytest.mark.parametrize("kind", encodings())
@pytest.mark.parametrize("training", [False, True])
def test_pixel_cap(kind, training):
  data = encodings()[kind]
  see(data, training=training, max_pixels=64 * 80)
  with pytest.raises(images.BadImage, match="80 x 64 pixels are more than the 5119"):
    see(data, training=training, max_pixels=64 * 80 - 1)


def test_pixel_cap_is_checked_before_decoding():
  """A bomb: the header promises 3.6 Gpixel, the file has 30 bytes of them."""
  bomb = bytearray(png16(np.zeros((2, 2), np.uint16)))
  struct.pack_into(">II", bomb, 16, 60_000, 60_000)
  struct.pack_into(">I", bomb, 29, zlib.crc32(bomb[12:29]))
  with pytest.raises(images.BadImage):
    decode(bytes(bomb))


@hypothesis.given(st.data())
@hypothesis.settings(deadline=None, max_examples=200)
def test_damaged_files_give_an_image_or_bad_image(data):
  kind = data.draw(st.sampled_from(sorted(encodings())))
  damaged = bytearray(encodings()[kind])
  for _ in range(data.draw(st.integers(1, 5))):
    damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
  for training in (False, True):
    try:
      out = see(bytes(damaged), training=training)
    except images.BadImage:
      continue
    assert out.shape == (16, 16, 3)


# --- partial decoding ---


@hypothesis.given(
  height=st.integers(1, 120),
  width=st.integers(1, 120),
  share=st.floats(0, 1),
  factor=st.sampled_from((1, 2, 4, 8)),
  layout=st.sampled_from(("420", "422", "444", "440", "411", "Gray")),
)
@hypothesis.settings(deadline=None, max_examples=300)
def test_partial_rows_equal_those_of_the_whole(height, width, share, factor, layout):
  pixels = picture(height, width)
  noise = np.random.default_rng(0).integers(0, 60, pixels.shape)
  pixels = np.clip(pixels + noise, 0, 255).astype(np.uint8)
  grey = layout == "Gray"
  data = simplejpeg.encode_jpeg(
    np.ascontiguousarray(pixels[..., :1]) if grey else pixels,
    colorspace="GRAY" if grey else "RGB",
    colorsubsampling=layout,
  )
  end = 1 + int(share * (height - 1))
  # Reduced are only crops whose result has some pixels.
  hypothesis.assume(factor == 1 or min(width, end) >= 4 * factor)
  part = jpeg.decode_rows(data, height=height, width=width, end=end, factor=factor)
  whole = simplejpeg.decode_jpeg(
    data,
    fastupsample=True,
    min_height=-(-height // factor),
    min_width=-(-width // factor),
    min_factor=factor,
  )
  rows = -(-end // factor)
  np.testing.assert_array_equal(part[:rows], whole[:rows])
  assert part.shape[1] == whole.shape[1]


def noisy_jpeg(**options) -> bytes:
  pixels = np.random.default_rng(0).integers(0, 256, (128, 128, 3), dtype=np.uint8)
  return saved(Image.fromarray(pixels), "JPEG", **options)


def count_decodings(monkeypatch) -> list[int]:
  """Rows of every decoding that is begun from now on."""
  rows, decode_jpeg = [], simplejpeg.decode_jpeg

  def counted(data, **options):
    rows.append(simplejpeg.decode_jpeg_header(data)[0])
    return decode_jpeg(data, **options)

  monkeypatch.setattr(simplejpeg, "decode_jpeg", counted)
  return rows


def test_rows_below_the_crop_are_not_decoded(monkeypatch):
  rows = count_decodings(monkeypatch)
  jpeg.decode_rows(noisy_jpeg(), height=128, width=128, end=40, factor=1)
  assert rows == [40]


@pytest.mark.parametrize("options", [{"progressive": True}, {"restart_marker_blocks": 4}])
def test_files_that_cannot_be_cut_are_decoded_whole_at_once(monkeypatch, options):
  data = noisy_jpeg(**options)
  whole = simplejpeg.decode_jpeg(data, fastupsample=True)
  rows = count_decodings(monkeypatch)
  part = jpeg.decode_rows(data, height=128, width=128, end=40, factor=1)
  assert rows == [128]
  np.testing.assert_array_equal(part, whole)


def test_damage_above_the_end_is_found():
  data = noisy_jpeg(quality=90)
  at = len(data) // 5
  data = data[:at] + b"\xff\xc4\x00\x03" + data[at + 4 :]  # a marker amid the pixels
  with pytest.raises(jpeg.BadImage):
    jpeg.decode_rows(data, height=128, width=128, end=64, factor=1)


def test_damage_below_the_end_does_no_harm():
  data = noisy_jpeg(quality=90)
  whole = simplejpeg.decode_jpeg(data, fastupsample=True)
  at = len(data) * 9 // 10
  data = data[:at] + bytes(20) + data[at + 20 :]
  part = jpeg.decode_rows(data, height=128, width=128, end=40, factor=1)
  np.testing.assert_array_equal(part[:40], whole[:40])


# --- crops ---


@hypothesis.given(
  height=st.integers(1, 700),
  width=st.integers(1, 700),
  seed=st.integers(0, 10**6),
  least=st.floats(0.02, 1.0),
  room=st.floats(0.01, 1.0),
)
@hypothesis.settings(deadline=None, max_examples=300)
def test_crops_keep_to_area_aspect_and_image(height, width, seed, least, room):
  rng = np.random.default_rng(seed)
  area = (least, min(1.0, least + room))
  box = images.draw_crop(rng, height=height, width=width, area=area, aspect=ASPECT)
  assert 0 <= box.top <= box.top + box.height <= height
  assert 0 <= box.left <= box.left + box.width <= width
  assert min(box.height, box.width) >= 1
  if (box.height, box.width) == (height, width):
    return
  least, most = (share * height * width for share in area)
  assert least <= box.height * box.width <= most
  # A side is a whole number of pixels: off by up to a half.
  assert (box.width - 0.5) / box.height <= ASPECT[1]
  assert (box.width + 0.5) / box.height >= ASPECT[0]


def test_crops_fill_their_ranges():
  rng = np.random.default_rng(0)
  boxes = [
    images.draw_crop(rng, height=400, width=400, area=AREA, aspect=ASPECT) for _ in range(4000)
  ]
  areas = np.array([box.height * box.width for box in boxes]) / 400**2
  aspects = np.array([box.width / box.height for box in boxes])
  tops = np.array([box.top / (400 - box.height) for box in boxes if box.height < 400])
  lefts = np.array([box.left / (400 - box.width) for box in boxes if box.width < 400])
  assert areas.min() < 0.06
  assert areas.max() > 0.95
  # Heights uniform between sqrt(0.05) and about 1: the mean square of such a side.
  assert 0.36 < areas.mean() < 0.44
  assert (aspects.min(), aspects.max()) == pytest.approx(ASPECT, abs=0.01)
  assert abs(aspects.mean() - np.mean(ASPECT)) < 0.01
  for places in (tops, lefts):
    assert abs(places.mean() - 0.5) < 0.02
    assert (places.min(), places.max()) == pytest.approx((0, 1), abs=0.01)


def drawn(seed, **options):
  """2,000 crops of images of many sizes, each drawn anew."""
  return [
    images.draw_crop(
      np.random.default_rng([seed, i]),
      height=8 + i % 97,
      width=8 + i % 53,
      area=(0.3, 0.7),
      aspect=ASPECT,
      **options,
    )
    for i in range(2000)
  ]


def test_only_crops_that_rounding_took_out_of_the_area_are_drawn_otherwise():
  changed = 0
  for i, (old, new) in enumerate(zip(drawn(0, bounded=False), drawn(0), strict=True)):
    share = old.height * old.width / ((8 + i % 97) * (8 + i % 53))
    whole = (old.height, old.width) == (8 + i % 97, 8 + i % 53)
    assert (old == new) == (0.3 <= share <= 0.7 or whole), i
    changed += old != new
  assert 10 < changed < 200


def test_crops_are_drawn_as_before_where_a_run_began_so():
  rng, boxes = np.random.default_rng(0), []
  for i in range(2000):
    crop = dict(height=8 + i % 97, width=8 + i % 53, area=(0.3, 0.7), aspect=ASPECT)
    boxes.append(images.draw_crop(rng, bounded=False, **crop))
  digest = hashlib.sha256(np.array(boxes, "<i4").tobytes()).hexdigest()[:16]
  assert digest == "5c66bf09898503aa", "old runs would see other crops when they are resumed"


def test_every_place_has_the_same_probability_the_last_one_too():
  """TensorFlow's never touches the lower and the right edge."""
  rng = np.random.default_rng(0)
  crops = dict(height=8, width=6, area=(1 / 3, 1 / 3), aspect=(1, 1))  # 4 x 4 pixels
  boxes = [images.draw_crop(rng, **crops) for _ in range(3000)]
  assert {(box.height, box.width) for box in boxes} == {(4, 4)}
  for places, count in (([box.top for box in boxes], 5), ([box.left for box in boxes], 3)):
    found = np.bincount(places, minlength=count)
    assert len(found) == count
    # Chi-square of at most 4 degrees of freedom: 18.5 is exceeded once in 1,000 times.
    assert ((found - 3000 / count) ** 2).sum() / (3000 / count) < 18.5


def test_the_whole_image_when_no_crop_fits():
  box = images.draw_crop(
    np.random.default_rng(0), height=10, width=300, area=(0.9, 1.0), aspect=ASPECT
  )
  assert box == (0, 0, 10, 300)


def test_training_crop_of_everything_is_the_resized_image():
  pixels = picture(48, 48)
  out = images.train_image(
    pixels,
    rng=np.random.default_rng(0),
    size=24,
    area=(1, 1),
    aspect=(1, 1),
    flip=False,
    max_pixels=CAP,
  )
  np.testing.assert_array_equal(out, cv2.resize(pixels, (24, 24)))


def test_flip_with_p_half_and_only_if_asked():
  pixels = picture(32, 32)
  seen = {
    flip: [
      images.train_image(
        pixels,
        rng=np.random.default_rng(seed),
        size=32,
        area=(1, 1),
        aspect=(1, 1),
        flip=flip,
        max_pixels=CAP,
      )
      for seed in range(200)
    ]
    for flip in (True, False)
  }
  assert all((out == pixels).all() for out in seen[False])
  flipped = [bool((out == pixels[:, ::-1]).all()) for out in seen[True]]
  assert all(
    is_flipped or (out == pixels).all() for is_flipped, out in zip(flipped, seen[True], strict=True)
  )
  assert 70 < sum(flipped) < 130


def test_training_crop_of_a_jpeg_is_that_of_its_pixels():
  """The partial decoding picks the same pixels; no reduction at this size."""
  pixels = picture(160, 200)
  data = simplejpeg.encode_jpeg(pixels, quality=95)
  decoded = simplejpeg.decode_jpeg(data)
  for seed in range(40):
    np.testing.assert_array_equal(
      *(
        images.train_image(
          image,
          rng=np.random.default_rng(seed),
          size=128,
          area=AREA,
          aspect=ASPECT,
          flip=True,
          max_pixels=CAP,
        )
        for image in (data, decoded)
      )
    )


def test_reduced_decoding_keeps_the_crop_where_it_is():
  pixels = picture(640, 800)
  data = simplejpeg.encode_jpeg(pixels, quality=98, colorsubsampling="444")
  for seed in range(40):
    from_file, from_pixels = (
      images.train_image(
        image,
        rng=np.random.default_rng(seed),
        size=64,
        area=(0.2, 1),
        aspect=ASPECT,
        flip=True,
        max_pixels=CAP,
      ).astype(int)
      for image in (data, pixels)
    )
    assert np.abs(from_file - from_pixels).mean() < 3


@pytest.mark.parametrize(("size", "factor"), [(201, 1), (200, 2), (100, 4), (10, 8)])
def test_a_crop_is_decoded_as_small_as_the_result_allows(monkeypatch, size, factor):
  factors, decode_rows = [], jpeg.decode_rows

  def watched(data, **options):
    factors.append(options["factor"])
    return decode_rows(data, **options)

  monkeypatch.setattr(jpeg, "decode_rows", watched)
  images.train_image(
    simplejpeg.encode_jpeg(picture(400, 600)),
    rng=np.random.default_rng(0),
    size=size,
    area=(1, 1),
    aspect=(1.5, 1.5),
    flip=False,
    max_pixels=CAP,
  )
  assert factors == [factor]


def test_the_same_draws_give_the_same_image():
  data = encodings()["jpeg"]
  first, second, other = (see(data, training=True, seed=seed) for seed in (3, 3, 4))
  np.testing.assert_array_equal(first, second)
  assert (first != other).any()


# --- evaluation ---


def bilinear(pixels: np.ndarray, height: int, width: int) -> np.ndarray:
  """Half-pixel centres, no antialiasing, written from the definition."""

  def taps(new: int, old: int):
    at = (np.arange(new) + 0.5) * old / new - 0.5
    low = np.floor(at).astype(int)
    return np.clip(low, 0, old - 1), np.clip(low + 1, 0, old - 1), at - low

  (top, bottom, down), (left, right, across) = (
    taps(height, len(pixels)),
    taps(width, pixels.shape[1]),
  )
  rows = pixels[top] * (1 - down)[:, None, None] + pixels[bottom] * down[:, None, None]
  return rows[:, left] * (1 - across)[None, :, None] + rows[:, right] * across[None, :, None]


@pytest.mark.parametrize("size", [16, 40, 100])
def test_straight_to_the_square(size):
  pixels = picture(48, 80)
  out = images.evaluate_image(pixels, size=size, resize=0, max_pixels=CAP)
  assert np.abs(out - bilinear(pixels, size, size)).max() <= 1


@pytest.mark.parametrize("shape", [(48, 80), (80, 48), (48, 48)])
def test_smaller_side_then_central_crop(shape):
  pixels = picture(*shape)
  out = images.evaluate_image(pixels, size=20, resize=24, max_pixels=CAP)
  height, width = (side * 24 // 48 for side in shape)
  whole = bilinear(pixels, height, width)
  top, left = (height - 20) // 2, (width - 20) // 2
  assert np.abs(out - whole[top : top + 20, left : left + 20]).max() <= 1


@hypothesis.given(
  height=st.integers(1, 300),
  width=st.integers(1, 300),
  size=st.integers(1, 64),
  more=st.floats(0, 1),
)
@hypothesis.settings(deadline=None)
def test_evaluation_is_always_the_size_asked_for(height, width, size, more):
  pixels = np.zeros((height, width, 3), np.uint8)
  resize = size + int(more * size)
  out = images.evaluate_image(pixels, size=size, resize=resize, max_pixels=10**9)
  assert out.shape == (size, size, 3)


def test_a_crop_larger_than_the_resized_image_is_refused():
  with pytest.raises(ValueError, match="resize=20 is smaller than the central crop size=24"):
    images.evaluate_image(picture(), size=24, resize=20, max_pixels=CAP)


def test_evaluation_decodes_exactly():
  """No reduction in the DCT, however large the file."""
  pixels = np.random.default_rng(0).integers(0, 256, (256, 256, 3), dtype=np.uint8)
  data = simplejpeg.encode_jpeg(pixels, quality=95)
  out = images.evaluate_image(data, size=32, resize=0, max_pixels=CAP)
  np.testing.assert_array_equal(out, cv2.resize(simplejpeg.decode_jpeg(data), (32, 32)))


# --- a random square of the resized image ---


def square(pixels, *, seed=0, size=20, resize=32, flip=False):
  rng = np.random.default_rng(seed)
  return images.train_square(pixels, rng=rng, size=size, resize=resize, flip=flip, max_pixels=CAP)


def test_a_random_square_is_cut_out_of_the_whole_resized_image():
  pixels = picture(50, 90)
  whole = images.evaluate_image(pixels, size=32, resize=0, max_pixels=CAP)
  places = [(top, left) for top in range(13) for left in range(13)]
  known = {whole[top : top + 20, left : left + 20].tobytes(): (top, left) for top, left in places}
  drawn = [known[square(pixels, seed=seed).tobytes()] for seed in range(400)]
  for axis in range(2):  # All 13 places alike: the mean of 400 is within four standard errors of 6.
    values = [place[axis] for place in drawn]
    assert set(values) == set(range(13))
    assert abs(np.mean(values) - 6) < 4 * np.sqrt((13**2 - 1) / 12 / 400)
  assert len(set(drawn)) > 100


def test_half_of_the_random_squares_are_flipped():
  pixels = picture(32, 32)
  flipped = 0
  for seed in range(200):
    plain, maybe = square(pixels, seed=seed), square(pixels, seed=seed, flip=True)
    assert np.array_equal(maybe, plain) or np.array_equal(maybe, plain[:, ::-1])
    flipped += not np.array_equal(maybe, plain)
  assert 72 < flipped < 128


def test_a_random_square_of_a_file_and_of_its_full_size():
  pixels = picture(32, 32)
  data = saved(Image.fromarray(pixels), "PNG")
  np.testing.assert_array_equal(square(data), square(pixels))
  np.testing.assert_array_equal(square(pixels, size=32), pixels)


def test_square_image_is_the_centre_of_the_whole_image_made_square():
  pixels = np.random.default_rng(0).integers(0, 256, (40, 90, 3), np.uint8)
  whole = images.evaluate_image(pixels, size=32, resize=0, max_pixels=10**4)
  cut = images.square_image(pixels, size=28, resize=32, max_pixels=10**4)
  np.testing.assert_array_equal(cut, whole[2:30, 2:30])
  with pytest.raises(images.BadImage, match="more than the 3599 that are allowed"):
    images.square_image(pixels, size=28, resize=32, max_pixels=3599)
