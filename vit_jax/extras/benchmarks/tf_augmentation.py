"""Operations of augmentation in TensorFlow, to measure their speed; they need not be exact.

Everywhere `tf` is the module of TensorFlow and `image` (H, W, 3) uint8.
"""

import math

GREY = 128


def rand_augment(tf, image, layers: int = 2, magnitude: float = 10.0):
  """RandAugment with the operations and ranges of `vit_jax.data.augmentation.rand_augment`."""
  share = magnitude / 10
  factor = 0.1 + 1.8 * share
  threshold = int(256 * share)
  addition = int(110 * share)
  shift = 8 - min(8, int(4 * share))

  def operations(x):
    sign = tf.sign(tf.random.uniform([]) - 0.5)
    angle = sign * math.radians(30 * share)
    shear = sign * 0.3 * share
    move = sign * 100 * share
    height, width = (tf.cast(tf.shape(x)[axis] - 1, tf.float32) / 2 for axis in (0, 1))
    cos, sin = tf.cos(angle), tf.sin(angle)
    turn = (
      cos,
      -sin,
      width - cos * width + sin * height,
      sin,
      cos,
      height - sin * width - cos * height,
    )
    wide = tf.cast(x, tf.int32)
    return (
      lambda: stretched(tf, x),
      lambda: equalized(tf, x),
      lambda: 255 - x,
      lambda: transformed(tf, x, turn),
      lambda: tf.bitwise.left_shift(tf.bitwise.right_shift(x, shift), shift),
      lambda: tf.cast(tf.where(wide < threshold, wide, 255 - wide), tf.uint8),
      lambda: blended(tf, grey(tf, x), x, factor),
      lambda: blended(tf, tf.reduce_mean(tf.cast(grey(tf, x), tf.float32)), x, factor),
      lambda: blended(tf, 0.0, x, factor),
      lambda: blended(tf, smoothed(tf, x), x, factor),
      lambda: transformed(tf, x, (1, shear, 0, 0, 1, 0)),
      lambda: transformed(tf, x, (1, 0, 0, shear, 1, 0)),
      lambda: transformed(tf, x, (1, 0, move, 0, 1, 0)),
      lambda: transformed(tf, x, (1, 0, 0, 0, 1, move)),
      lambda: cut(tf, x, int(40 * share)),
      lambda: tf.cast(tf.where(wide < 128, tf.minimum(wide + addition, 255), wide), tf.uint8),
    )

  for _ in range(layers):
    image = tf.switch_case(tf.random.uniform([], 0, 16, tf.int32), operations(image))
  return image


JITTER = 0.3  # most change of brightness, contrast and colour


def three_augment(tf, image):
  """Grey, solarized or blurred; then brightness, contrast and colour."""
  one_of = (
    lambda: grey(tf, image),
    lambda: tf.where(image < 128, image, 255 - image),
    lambda: blurred(tf, image, tf.random.uniform([], 0.1, 2.0)),
  )
  image = tf.switch_case(tf.random.uniform([], 0, 3, tf.int32), one_of)
  factors = tf.random.uniform([3], 1 - JITTER, 1 + JITTER)
  image = blended(tf, 0.0, image, factors[0])
  image = blended(tf, tf.reduce_mean(tf.cast(grey(tf, image), tf.float32)), image, factors[1])
  return blended(tf, grey(tf, image), image, factors[2])


def blended(tf, other, image, factor):
  """other + factor * (image - other), within 0..255."""
  other = tf.cast(other, tf.float32)
  image = tf.cast(image, tf.float32)
  return tf.cast(tf.clip_by_value(other + factor * (image - other), 0.0, 255.0), tf.uint8)


def grey(tf, image):
  """The grey image in three channels."""
  return tf.image.grayscale_to_rgb(tf.image.rgb_to_grayscale(image))


def stretched(tf, image):
  """Each channel stretched to 0..255."""
  x = tf.cast(image, tf.float32)
  low, high = tf.reduce_min(x, (0, 1)), tf.reduce_max(x, (0, 1))
  return tf.cast(tf.where(high > low, (x - low) * 255 / tf.maximum(high - low, 1), x), tf.uint8)


def equalized(tf, image):
  """Each channel with about equally frequent levels."""

  def channel(x):
    levels = tf.cast(x, tf.int32)
    counts = tf.math.bincount(levels, minlength=256)
    last = tf.boolean_mask(counts, counts > 0)[-1]
    step = (tf.reduce_sum(counts) - last) // 255
    table = (tf.cumsum(counts, exclusive=True) + step // 2) // tf.maximum(step, 1)
    table = tf.cond(step > 0, lambda: tf.minimum(table, 255), lambda: tf.range(256))
    return tf.gather(table, levels)

  return tf.cast(tf.stack([channel(image[..., c]) for c in range(3)], -1), tf.uint8)


def transformed(tf, image, matrix):
  """An affine transform, with the nearest pixel, and grey outside."""
  transform = tf.stack([*(tf.cast(x, tf.float32) for x in matrix), 0.0, 0.0])
  return tf.raw_ops.ImageProjectiveTransformV3(
    images=image[None],
    transforms=transform[None],
    output_shape=tf.shape(image)[:2],
    fill_value=float(GREY),
    interpolation="NEAREST",
  )[0]


def smoothed(tf, image):
  """Weights 1 and 5 in the middle, of 13; the edge is left as it is."""
  kernel = tf.constant([[1, 1, 1], [1, 5, 1], [1, 1, 1]], tf.float32)[..., None, None] / 13
  inner = filtered(tf, image, kernel, "VALID")
  padding = [[1, 1], [1, 1], [0, 0]]
  inside = tf.pad(tf.ones_like(inner), padding)
  return tf.where(inside > 0, tf.pad(inner, padding), tf.cast(image, tf.float32))


def blurred(tf, image, radius):
  """A Gaussian blur with 13 weights in each direction."""
  places = tf.range(-6.0, 7.0)
  weights = tf.exp(-(places**2) / (2 * radius**2))
  weights /= tf.reduce_sum(weights)
  rows = filtered(tf, image, weights[:, None, None, None], "SAME")
  return tf.cast(filtered(tf, rows, weights[None, :, None, None], "SAME"), tf.uint8)


def filtered(tf, image, kernel, padding: str):
  """The image (H, W, 3) filtered by a kernel (h, w, 1, 1), float32."""
  kernel = tf.tile(kernel, [1, 1, 3, 1])
  return tf.nn.depthwise_conv2d(tf.cast(image, tf.float32)[None], kernel, [1] * 4, padding)[0]


def cut(tf, image, reach: int):
  """A grey square of twice the reach about a random pixel."""
  height, width = tf.shape(image)[0], tf.shape(image)[1]
  row, column = (tf.random.uniform([], 0, side, tf.int32) for side in (height, width))

  def near(side, at):
    return tf.abs(tf.range(side) - at) < reach

  inside = near(height, row)[:, None] & near(width, column)[None]
  return tf.where(inside[..., None], tf.constant(GREY, tf.uint8), image)
