"""Makes a dataset with fast random access from image files."""
