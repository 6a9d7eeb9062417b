"""Distillation: a model learns from the labels and from the logits of another one."""
