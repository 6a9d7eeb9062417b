"""Buckets as a storage for runs: gs:// of Google Cloud, and s3:// of Amazon and those like it."""
