"""Data: sources of examples, decoding and cropping, and batches that depend only on the step."""
