"""Speed compared with other libraries: training steps, predictions, the input, an accelerator."""
