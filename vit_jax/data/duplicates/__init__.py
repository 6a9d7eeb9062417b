"""Images of one source that are copies of images of others; tools/dedup.py is its command line."""
