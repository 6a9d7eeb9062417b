"""Compiles the training step for TPUs and GPUs without having any."""
