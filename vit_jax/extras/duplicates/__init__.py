"""Finds images of one source that are copies of images of others; the command is vit-jax dedup."""
