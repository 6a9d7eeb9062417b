"""TIFF, PNG and PPM of any layout are decoded to the right RGB; doubtful samples are refused."""

import io
import struct

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st
from PIL import Image

from tests.data.pictures import assert_near, chunk, decode, naive_rgb, picture, png, png16, saved
from tests.data.tiff import tiff
from vit_jax.data import images, pillow


@hypothesis.given(
  height=st.integers(1, 40),
  width=st.integers(1, 40),
  dtype=st.sampled_from([np.uint8, np.uint16]),
  channels=st.sampled_from([0, 2, 3, 4]),
  order=st.sampled_from("<>"),
  deflate=st.booleans(),
  planar=st.booleans(),
  rows=st.sampled_from([None, 1, 7]),
  tile=st.sampled_from([0, 16, 32]),
  seed=st.integers(0, 99),
)
@hypothesis.settings(max_examples=200)
def test_a_tiff_of_any_layout_is_read_exactly_or_refused(
  height, width, dtype, channels, seed, **layout
):
  pixels = np.random.default_rng(seed).integers(0, 256, (height, width, channels or 1), np.uint8)
  pixels[0, 0] = 255
  if channels in (2, 4):
    pixels[..., -1] = 255  # opaque
  stored = pixels.astype(dtype) * (257 if dtype == np.uint16 else 1)
  data = tiff(stored if channels else stored[..., 0], **layout)
  colours = pixels[..., : {2: 1, 4: 3}.get(channels, channels or 1)]
  try:
    out = decode(data)
  except images.BadImage:
    # Pillow reads separate planes and 16-bit grey with alpha as noise or not at all.
    assert layout["planar"] or (dtype, channels) == (np.uint16, 2)
    assert dtype == np.uint16 or channels < 3
    return
  np.testing.assert_array_equal(out, np.broadcast_to(colours, (height, width, 3)))


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("deflate", [False, True])
def test_cmyk_of_a_tiff_is_ink(dtype, deflate):
  ink = np.concatenate([picture(), picture(seed=1)[..., :1] // 2], -1)
  stored = ink.astype(dtype) * (np.iinfo(dtype).max // 255)
  data = tiff(stored, photometric=5, deflate=deflate)
  assert_near(decode(data), naive_rgb(ink).astype(np.uint8), tolerance=2)


@pytest.mark.parametrize("white", [1, 100, 255, 1023, 65535])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("plain", [False, True])
def test_ppm_says_which_sample_is_white(white, channels, plain):
  samples = np.linspace(0, white, 40 * channels).astype(int).reshape(5, 8, channels)
  kind = {(1, False): 5, (3, False): 6, (1, True): 2, (3, True): 3}[channels, plain]
  body = samples.astype(">u2" if white > 255 else "u1").tobytes()
  if plain:
    body = " ".join(map(str, samples.ravel())).encode()
  out = decode(b"P%d 8 5 %d\n" % (kind, white) + body)
  assert np.abs(out - samples / white * 255).max() <= 1


# --- 16 bits ---


def with_alpha(samples):
  return np.concatenate([samples, np.full_like(samples[..., :1], 65535)], -1)


DEEP = {
  "png grey": lambda x: png16(x[..., 0]),
  "png rgb": png16,
  "png grey and alpha": lambda x: png16(with_alpha(x[..., :1])),
  "png rgb and alpha": lambda x: png16(with_alpha(x)),
  "tiff grey": lambda x: tiff(x[..., 0]),
  "tiff grey, big-endian": lambda x: tiff(x[..., 0], order=">"),
  "tiff rgb": tiff,
  "tiff rgb and alpha": lambda x: tiff(with_alpha(x), deflate=True),
  "pgm": lambda x: b"P5 8 8 65535\n" + x[..., 0].astype(">u2").tobytes(),
  "ppm": lambda x: b"P6 8 8 65535\n" + x.astype(">u2").tobytes(),
}


def ramp(top: int) -> np.ndarray:
  """Pixels (8, 8, 3) uint16 from 0 to `top`."""
  return np.stack([np.linspace(0, top, 64).reshape(8, 8)] * 3, -1).astype(np.uint16)


@pytest.mark.parametrize("kind", DEEP)
def test_samples_of_16_bits_are_divided_by_256_and_those_of_few_bits_refused(kind):
  """Many cameras and programs write such files; one image does not show its range."""
  for top in (4200, 65535):
    out = decode(DEEP[kind](ramp(top)))
    assert np.abs(out - ramp(top) / 257).max() <= 1
    assert (out.min(), out.max()) == (0, top >> 8)
  for top in (255, 1023, 3900):
    with pytest.raises(images.BadImage, match="16-bit samples are all below 4096 of 65535"):
      decode(DEEP[kind](ramp(top)))


def key(*samples: int) -> bytes:
  """The chunk of a PNG that says which colour is transparent."""
  return chunk(b"tRNS", struct.pack(f">{len(samples)}H", *samples))


def test_the_transparent_grey_of_16_bits_becomes_white_and_a_colour_is_refused():
  samples = ramp(65535)[..., 0]
  out = decode(png16(samples, key(samples[2, 3])))
  assert out[2, 3].tolist() == [255] * 3
  np.testing.assert_array_equal(np.delete(out[..., 0], 19), np.delete(samples >> 8, 19))
  # Pillow compares its low bytes with samples of 8 bits: other pixels would become white.
  with pytest.raises(images.BadImage, match="PNG of 16 bits with a transparent colour"):
    decode(png16(ramp(65535), key(0, 0, 0)))


@pytest.mark.parametrize(("depth", "step"), [(1, 255), (2, 85), (4, 17), (8, 1)])
def test_the_transparent_grey_of_few_bits_becomes_white(depth, step):
  """Two rows of 8 pixels, all but one of which keep their grey."""
  values = np.arange(8) % 2**depth
  row = int("".join(f"{value:0{depth}b}" for value in values), 2).to_bytes(depth, "big")
  for more, white in ((b"", -1), (key(1), 1)):
    out = decode(png([row] * 2, width=8, depth=depth, colour=0, more=more))
    expected = np.where(values == white, 255, values * step)
    np.testing.assert_array_equal(out[0, :, 0], expected)


def test_a_bilevel_tiff_need_not_say_that_it_has_one_bit():
  data = saved(np.eye(9, 20, dtype=bool), "TIFF")
  assert 258 not in Image.open(io.BytesIO(data)).tag_v2
  np.testing.assert_array_equal(decode(data)[..., 0], np.eye(9, 20) * 255)


# --- images that Pillow has opened ---

# By mode: the format that holds it, and how it is written.
OPENED = {mode: ("PNG", {}) for mode in ("1", "L", "LA", "RGB", "RGBA")}
OPENED |= {mode: ("JPEG", {}) for mode in ("CMYK", "YCbCr")}
OPENED |= {"P": ("PNG", dict(transparency=3)), "PA": ("TIFF", {}), "turned": ("PNG", {})}


@pytest.mark.parametrize("mode", OPENED)
@pytest.mark.parametrize("loaded", [False, True])
def test_an_opened_image_has_the_pixels_of_its_file(mode, loaded):
  pixels = np.random.default_rng(0).integers(0, 256, (12, 16, 4), np.uint8)
  kind, options = OPENED[mode]
  if mode == "turned":
    options = {"exif": Image.Exif()}
    options["exif"][0x0112] = 6
  image = Image.fromarray(pixels, "RGBA").convert("RGB" if mode == "turned" else mode)
  data = saved(image, kind, **options)
  opened = Image.open(io.BytesIO(data))
  if loaded:
    opened.load()
  wanted = pillow.decode(data, max_pixels=10**6)
  np.testing.assert_array_equal(pillow.of_opened(opened), wanted)


def test_an_image_that_was_made_is_as_it_was_made():
  cmyk = Image.new("CMYK", (3, 2), (255, 0, 0, 0))
  np.testing.assert_array_equal(pillow.of_opened(cmyk), [[(0, 255, 255)] * 3] * 2)
  clear = Image.new("RGBA", (3, 2), (9, 9, 9, 0))
  assert pillow.of_opened(clear).min() == 255
