"""Draws a run's figures: curves and the confusion matrix."""
