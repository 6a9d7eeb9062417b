"""Makes a data set with fast random access from image files."""
