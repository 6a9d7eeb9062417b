"""Pictures: curves, matrices, attention, filters, tiles of images, charts of the report."""
