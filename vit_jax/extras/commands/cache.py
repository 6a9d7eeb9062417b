"""Makes the cache of decoded training images that config.data.cache names.

vit-jax cache --config=configs/NAME.py[:ARG] --config.data.cache=DIR \
  [--config.data.cache_side=256] ... and the other flags of the run

It decodes every training image, reduces its smaller side to config.data.cache_side pixels, and
keeps it as uint8 pixels in DIR. Runs with the same flags then read the cache. If the command was
stopped or killed, start it again: it continues. Several hosts that share DIR may run it at the same
time and divide the work.

Exit status: 0 done; 2 wrong usage or config; 1 an image cannot be read or the disk fails.
"""

import sys

from vit_jax import recipes
from vit_jax.config import Config, ConfigError
from vit_jax.config.tool_flags import ToolFlags, ending, folder
from vit_jax.process.progress import Line, Progress
from vit_jax.process.text import one_line


def prepare(config: Config) -> None:
  """Makes the cache and shows the progress.

  Raises:
    ConfigError: config.data.cache is empty, or as `cache.prepare` and the sources.
  """
  from vit_jax.data import datasets
  from vit_jax.extras import prepared_cache as cache
  from vit_jax.training import checks

  data = config.data
  checks.check_given(config)
  checks.check_crops(data)
  cache.PreparedCache.check(config)
  if not data.cache:
    raise ConfigError("config.data.cache is empty; name a folder for the cache.")
  folder(data.cache, "config.data.cache")
  opener = datasets.opener_of(data)
  source = opener.training(data, labelled=False).source
  with Progress(Line(sys.stderr)) as progress:
    images = progress.images("cache")

    def started(count: int, size: int, free: int) -> None:
      images.begin(count)
      progress.clear()
      said = (
        f"{count:,} of {len(source):,} images are still to be cached: about {size / 1e6:,.0f} MB; "
        f"{free / 1e6:,.0f} MB are free in {data.cache}"
      )
      print(one_line(said))

    cache.prepare(
      source,
      data.cache,
      side=data.cache_side,
      max_pixels=data.max_pixels,
      threads=data.threads,
      started=started,
      done=images.done,
    )


def main(arguments: list[str] | None = None):
  """Makes the cache; see the exit status above."""
  flags = ToolFlags("cache", __doc__)
  flags.add_argument("--config", required=True, metavar="configs/NAME.py[:ARG]", help="the recipe")
  flags.add_settings()
  args, overrides = flags.parse_with_settings(arguments)
  with ending("cache"):
    from vit_jax.extras.experiments.facts import decided

    asked = recipes.resolve(args.config, overrides)
    prepare(decided(asked))
