"""What a step of training computes: objective, gradients, optimizer, moving average."""
