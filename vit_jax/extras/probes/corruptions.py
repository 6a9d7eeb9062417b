"""The corruptions of ImageNet-C, with their published parameters, for square images.

Source: Hendrycks and Dietterich, "Benchmarking neural network robustness to common corruptions and
perturbations", 2019, Appendix B, with the parameters of its code. They are made for images of 224
pixels. Two things differ from the published files: these were stored as JPEG of quality 85 after
the corruption, and motion blur is computed here with the kernel that ImageMagick documents. Frost
needs photographs, which do not belong to this project, so it is left out.

Each function takes pixels (S, S, 3) in [0, 1], float32, a severity from 0 to 4, and a generator,
and returns pixels in the same range, before they are clipped.
"""

import io

import cv2
import numpy as np
from PIL import Image
from scipy import ndimage

SEVERITIES = (1, 2, 3, 4, 5)
LEVEL = 255


def corrupted(name: str, severity: int, pixels: np.ndarray, row: int) -> np.ndarray:
  """Corrupted pixels (S, S, 3) uint8; equal arguments give equal pixels.

  Args:
    name: one of `CORRUPTIONS`.
    severity: 1 to 5.
    pixels: (S, S, 3) uint8.
    row: the image's number, which seeds the noise.
  """
  rng = np.random.default_rng((list(CORRUPTIONS).index(name), severity, row))
  result = CORRUPTIONS[name](np.float32(pixels) / LEVEL, severity - 1, rng)
  return np.uint8(np.clip(result, 0, 1) * LEVEL)


def gaussian_noise(x, severity, rng):
  """Noise of a normal distribution."""
  scale = (0.08, 0.12, 0.18, 0.26, 0.38)[severity]
  return x + rng.normal(scale=scale, size=x.shape)


def shot_noise(x, severity, rng):
  """Photons that are counted: a Poisson distribution."""
  photons = (60, 25, 12, 5, 3)[severity]
  return rng.poisson(x * photons) / photons


def impulse_noise(x, severity, rng):
  """Salt and pepper: some values become 0 or 1."""
  share = (0.03, 0.06, 0.09, 0.17, 0.27)[severity]
  hit = rng.random(x.shape) < share
  return np.where(hit, rng.random(x.shape) < 0.5, x)


def defocus_blur(x, severity, rng):
  """A disk, slightly smoothed."""
  del rng
  radius, smoothing = ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5))[severity]
  reach = max(8, radius)
  offsets = np.arange(-reach, reach + 1)
  disk = np.float32(offsets[:, None] ** 2 + offsets**2 <= radius**2)
  side = 3 if radius <= 8 else 5
  kernel = cv2.GaussianBlur(disk / disk.sum(), (side, side), smoothing)
  return cv2.filter2D(x, -1, kernel)


def glass_blur(x, severity, rng):
  """A blur, pixels that take the values of near ones, one after the other, and a blur."""
  sigma, reach, times = ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2))[severity]
  packed = (np.uint32(blurred(x, sigma) * LEVEL) @ np.uint32((2**16, 2**8, 1))).tolist()
  places = range(len(x) - reach, reach, -1)
  for _ in range(times):
    moves = rng.integers(-reach, reach, (len(places), len(places), 2)).tolist()
    for row, along in zip(places, moves, strict=True):
      for column, (right, down) in zip(places, along, strict=True):
        packed[row][column] = packed[row + down][column + right]
  mixed = (np.array(packed)[..., None] >> (16, 8, 0)) & LEVEL
  return blurred(np.float32(mixed) / LEVEL, sigma)


def motion_blur(x, severity, rng):
  """A blur along a line, up to 45 degrees from the rows."""
  radius, sigma = ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15))[severity]
  return moved(x, radius, sigma, rng.uniform(-45, 45))


def zoom_blur(x, severity, rng):
  """The mean of the image and of its enlargements."""
  del rng
  end, step = ((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03))[severity]
  factors = np.arange(1, end, step)
  return (x + sum(enlarged(x, factor) for factor in factors)) / (len(factors) + 1)


def snow(x, severity, rng):
  """Flakes that fall, and a brighter image."""
  mean, deviation, zoom, least, radius, sigma, kept = (
    (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
    (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
    (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
    (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
    (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
  )[severity]
  layer = rng.normal(mean, deviation, x.shape[:2]).astype(np.float32)
  layer = enlarged(layer[..., None], zoom)
  layer = np.clip(np.where(layer < least, 0, layer), 0, 1)
  layer = moved(layer, radius, sigma, rng.uniform(-135, -45))
  grey = cv2.cvtColor(x, cv2.COLOR_RGB2GRAY)[..., None]
  whiter = kept * x + (1 - kept) * np.maximum(x, grey * 1.5 + 0.5)
  return whiter + layer + np.rot90(layer, 2)


def fog(x, severity, rng):
  """A plasma fractal over the image."""
  strength, decay = ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4))[severity]
  side = 1 << (max(256, len(x)) - 1).bit_length()
  height = plasma(side, decay, rng)[: len(x), : len(x), None]
  most = x.max()
  return (x + strength * height) * most / (most + strength)


def brightness(x, severity, rng):
  """A greater value in HSV."""
  del rng
  hsv = cv2.cvtColor(x, cv2.COLOR_RGB2HSV)
  hsv[..., 2] = np.clip(hsv[..., 2] + (0.1, 0.2, 0.3, 0.4, 0.5)[severity], 0, 1)
  return cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB)


def contrast(x, severity, rng):
  """Values nearer to the mean of their channel."""
  del rng
  mean = x.mean(axis=(0, 1))
  return (x - mean) * (0.4, 0.3, 0.2, 0.1, 0.05)[severity] + mean


def elastic_transform(x, severity, rng):
  """A random affine map, then displacements that are smoothed over an area."""
  strength, sigma, affine = (
    np.array(
      ((2, 0.7, 0.1), (2, 0.08, 0.2), (0.05, 0.01, 0.02), (0.07, 0.01, 0.02), (0.12, 0.01, 0.02))
    )[severity]
    * 244
  )
  side = len(x)
  middle = np.full(2, side // 2, np.float32)
  reach = side // 3
  corners = np.float32([middle + reach, np.add(middle, (reach, -reach)), middle - reach])
  changed = corners + rng.uniform(-affine, affine, corners.shape).astype(np.float32)
  matrix = cv2.getAffineTransform(corners, changed)
  x = cv2.warpAffine(x, matrix, (side, side), borderMode=cv2.BORDER_REFLECT_101)
  noise = rng.uniform(-1, 1, (2, side, side))
  down, right = (
    strength * ndimage.gaussian_filter(each, sigma, mode="reflect", truncate=3) for each in noise
  )
  rows, columns = np.mgrid[:side, :side]
  places = np.stack([rows + down, columns + right])
  channels = [
    ndimage.map_coordinates(x[..., channel], places, order=1, mode="reflect")
    for channel in range(x.shape[-1])
  ]
  return np.stack(channels, axis=-1)


def pixelate(x, severity, rng):
  """Fewer pixels."""
  del rng
  side = int(len(x) * (0.6, 0.5, 0.4, 0.3, 0.25)[severity])
  small = as_image(x).resize((side, side), Image.Resampling.BOX)
  return np.float32(small.resize((len(x), len(x)), Image.Resampling.BOX)) / LEVEL


def jpeg_compression(x, severity, rng):
  """JPEG of a low quality."""
  del rng
  stream = io.BytesIO()
  as_image(x).save(stream, "JPEG", quality=(25, 18, 15, 10, 7)[severity])
  with Image.open(stream) as image:
    return np.float32(image) / LEVEL


CORRUPTIONS = {
  function.__name__: function
  for function in (
    *(gaussian_noise, shot_noise, impulse_noise, defocus_blur, glass_blur, motion_blur, zoom_blur),
    *(snow, fog, brightness, contrast, elastic_transform, pixelate, jpeg_compression),
  )
}


def as_image(x: np.ndarray) -> Image.Image:
  """Pixels in [0, 1] as a Pillow image."""
  return Image.fromarray(np.uint8(np.round(x * LEVEL)))


def blurred(x: np.ndarray, sigma: float) -> np.ndarray:
  """A Gaussian blur of rows and columns, of 4 standard deviations."""
  return ndimage.gaussian_filter(x, (sigma, sigma, 0), mode="nearest", truncate=4)


def moved(x: np.ndarray, radius: int, sigma: float, angle: float) -> np.ndarray:
  """A blur in one direction: half a Gaussian of 2 radius + 1 pixels along a line.

  Args:
    x: (S, S, channels).
    radius, sigma: in pixels.
    angle: of the line, degrees.
  """
  steps = np.arange(2 * radius + 1)
  weights = np.exp(-(steps**2) / (2 * sigma**2))
  radians = np.deg2rad(angle)
  result = np.zeros_like(x)
  for step, weight in zip(steps, weights / weights.sum(), strict=True):
    down = -int(np.ceil(step * np.sin(radians) - 0.5))
    right = -int(np.ceil(step * np.cos(radians) - 0.5))
    rows = np.clip(np.arange(len(x)) - down, 0, len(x) - 1)
    columns = np.clip(np.arange(len(x)) - right, 0, len(x) - 1)
    result += np.float32(weight) * x[rows][:, columns]
  return result


def enlarged(x: np.ndarray, factor: float) -> np.ndarray:
  """The middle of an image (S, S, channels), enlarged to the whole; order 1."""
  side = len(x)
  inner = int(np.ceil(side / factor))
  first = (side - inner) // 2
  middle = x[first : first + inner, first : first + inner]
  large = ndimage.zoom(middle, (factor, factor, 1), order=1)
  first = (len(large) - side) // 2
  return large[first : first + side, first : first + side]


def plasma(side: int, decay: float, rng: np.random.Generator) -> np.ndarray:
  """A plasma fractal by the diamond-square algorithm, (side, side) from 0 to 1.

  Args:
    side: a power of 2; opposite edges meet.
    decay: divides the noise after each halving of the squares.
    rng: draws the noise.
  """
  result = np.zeros((side, side))
  step = side
  noise = 100.0

  def rough(total):
    return total / 4 + noise * rng.uniform(-noise, noise, total.shape)

  while step >= 2:
    half = step // 2
    corners = result[::step, ::step]
    total = corners + np.roll(corners, -1, 0)
    result[half::step, half::step] = rough(total + np.roll(total, -1, 1))
    centres = result[half::step, half::step]
    above = centres + np.roll(centres, 1, 0) + corners + np.roll(corners, -1, 1)
    result[::step, half::step] = rough(above)
    beside = centres + np.roll(centres, 1, 1) + corners + np.roll(corners, -1, 0)
    result[half::step, ::step] = rough(beside)
    step = half
    noise /= decay
  result -= result.min()
  return result / result.max()
