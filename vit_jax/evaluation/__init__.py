"""Evaluations: which figures of a model are computed, and on which images."""
