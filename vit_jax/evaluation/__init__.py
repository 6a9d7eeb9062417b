"""What is measured of a model, and on which images."""
