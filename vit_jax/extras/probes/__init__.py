"""Probes: how well classifiers on the features of a frozen model do on a user's images."""
