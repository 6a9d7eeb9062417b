"""Sources of images besides folders and TFDS: tables, tar files, the Hub, tasks of the paper."""
