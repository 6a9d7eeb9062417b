"""Finds images of one source that are copies of images of others; the command is tools/dedup.py."""
