"""Augmentation of training images on the host: steps with settings, drawn from a generator.

`vit_jax.registry.AUGMENTATIONS` lists the steps; `config.data.augment` is the list of those of a
run.
"""
