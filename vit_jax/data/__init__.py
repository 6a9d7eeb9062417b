"""Input: sources of examples, image decoding and cropping, and batches that depend on the step alone."""
