"""What a run on prepared data does not need; only `vit_jax.registry` leads from the core here."""
