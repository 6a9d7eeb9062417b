"""A model from anything that holds one, and its predictions."""
