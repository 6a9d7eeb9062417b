"""Input: sources of examples, decoding and cropping, batches that depend on the step alone."""
