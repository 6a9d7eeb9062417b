"""The training step: objective, gradients, optimizer, moving average."""
