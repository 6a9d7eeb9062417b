"""Weights, and names of models, of other libraries."""
