"""Speed compared with other libraries: the training step, the input, an accelerator."""
