"""Speed and largest batch of models, by image size (Figure 12)."""
