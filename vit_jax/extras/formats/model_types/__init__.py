"""The model types of Transformers, a file for each family of them."""
