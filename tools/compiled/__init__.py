"""Compiles the training step for TPUs without having any."""
