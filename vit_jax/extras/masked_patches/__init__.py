"""Masked patch prediction, the paper's self-supervision (Section 4.6, Appendix B.1.2)."""
