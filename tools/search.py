"""The same as `vit-jax search`, without an installed command."""

from vit_jax.extras.commands.main import run

if __name__ == "__main__":
  run("search")
