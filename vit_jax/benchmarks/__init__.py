"""Speed here, beside other libraries: the training step, the input, an accelerator."""
