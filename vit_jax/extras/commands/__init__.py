"""The command vit-jax: one file for each of its commands; `main` lists them."""
