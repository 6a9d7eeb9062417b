"""Evaluations: which metrics of a model are computed, and on which images."""
