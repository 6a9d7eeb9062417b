"""Sources of images beside folders and TFDS: tables, tar files, the Hub, tasks of the paper."""
