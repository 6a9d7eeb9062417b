"""What a run on prepared data does not need; only `vit_jax.registry` leads from the core here."""

from vit_jax import config as config  # first: it asks for the settings that extras add
