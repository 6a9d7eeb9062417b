"""A model as a program: one file that computes logits of pixels without vit_jax."""
