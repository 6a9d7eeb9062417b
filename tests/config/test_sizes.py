"""Sizes of images: the side of a square, or height and width."""

import jax.numpy as jnp
import numpy as np
import pytest

from vit_jax import config as c
from vit_jax.config import fields, recipe_file
from vit_jax.config.tool_flags import ToolFlags, image_size


@pytest.mark.parametrize(
  ("text", "size"),
  [("224", 224), ("224x256", (224, 256)), ("(224, 256)", (224, 256)), ("[64,64]", 64)],
)
def test_how_users_write_a_size(text, size):
  assert fields.read_size(text) == size
  config = recipe_file.replaced(c.Config(), {"data.image_size": text})
  assert config.data.image_size == size
  assert c.from_dict(c.to_dict(config)).data.image_size == size  # as the JSON of a run
  assert image_size(text) == size
  assert fields.read_size(c.in_pixels(size, "x")) == size


@pytest.mark.parametrize("text", ["224x", "x", "1x2x3", "224.5", "auto x 3"])
def test_no_size(text, capsys):
  with pytest.raises(c.ConfigError, match="cannot be read as a size; try 224, or auto"):
    recipe_file.replaced(c.Config(), {"data.image_size": text})
  flags = ToolFlags("tool")
  flags.add_argument("--image-size", type=image_size)
  with pytest.raises(SystemExit):
    flags.parse_args([f"--image-size={text}"])
  assert "nor two such as 224x256" in capsys.readouterr().err


@pytest.mark.parametrize("kind", [np.int64, np.uint8, jnp.int32])
def test_whole_numbers_of_numpy_and_jax_are_sizes(kind):
  for value, size in ((kind(64), 64), ((kind(64), kind(96)), (64, 96)), ([kind(64), 64], 64)):
    assert fields.as_size(value) == size
    assert {type(side) for side in c.sides(fields.as_size(value))} == {int}
  with pytest.raises(TypeError):
    fields.as_size(np.bool_(True))


@pytest.mark.parametrize(
  ("value", "message"),
  [
    ((224,), "is no size; give a number of pixels, or \\(height, width\\)"),
    ((224, "256"), "is no size"),
    (224.0, "is no size"),
    (True, "is no size"),
    ((224, 5000), "too large .*the most is 4096"),
    ((0, 224), "too small .*the least is 1"),
  ],
)
def test_sizes_out_of_bounds_are_refused(value, message):
  with pytest.raises(c.ConfigError, match=message):
    c.from_dict({"data": {"image_size": value}})


def test_what_follows_the_size_is_in_proportion_along_each_axis():
  config = c.Config(data=c.Data(image_size=224, evaluate_resize=256, train_resize=(448, 512)))
  wide = recipe_file.replaced(config, {"data.image_size": "112x448"}).data
  assert (wide.evaluate_resize, wide.train_resize) == ((128, 512), (224, 1024))
  back = c.Data(image_size=(64, 96), train_resize_ratio=1.25).resized_before()
  assert back == (80, 120)
  assert c.covers((248, 284), (224, 256))
  assert not c.covers((248, 250), (224, 256))


def test_what_follows_the_size_must_be_given_where_the_size_is_left_to_its_rule():
  config = c.Config(data=c.Data(image_size=128, evaluate_resize=146, train_resize=160))
  words = {"data.image_size": c.AUTO}
  with pytest.raises(c.ConfigError, match="evaluate_resize=146 of the recipe is for 128 pixels"):
    recipe_file.replaced(config, words)
  words |= {"data.evaluate_resize": c.AUTO}
  with pytest.raises(c.ConfigError, match=r"give config\.data\.train_resize too"):
    recipe_file.replaced(config, words)
  data = recipe_file.replaced(config, words | {"data.train_resize": "0"}).data
  assert (data.image_size, data.evaluate_resize, data.train_resize) == (c.AUTO, c.AUTO, 0)
  straight = c.Config(data=c.Data(image_size=128, evaluate_resize=0))
  assert recipe_file.replaced(straight, {"data.image_size": c.AUTO}).data.image_size == c.AUTO
