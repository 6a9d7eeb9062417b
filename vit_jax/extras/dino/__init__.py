"""DINO: self-distillation without labels (Caron et al., 2021, arXiv 2104.14294)."""
