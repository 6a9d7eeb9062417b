"""Vision Transformer (arXiv 2010.11929): pre-training and fine-tuning in JAX and Flax."""
