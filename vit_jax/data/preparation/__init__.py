"""From images in files to a dataset that is read at random quickly."""
