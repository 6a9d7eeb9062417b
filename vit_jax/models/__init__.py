"""The paper's models by name. The only package that imports flax.linen."""

from vit_jax.models.description import settings_of
from vit_jax.models.naming import configured, create, names
from vit_jax.models.recognition import module_of
from vit_jax.models.resnet import ResNet
from vit_jax.models.vit import ViT

__all__ = ["ResNet", "ViT", "configured", "create", "module_of", "names", "settings_of"]
