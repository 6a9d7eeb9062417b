"""ViT, ViT-MAE and ViT-MSN of Transformers.

Reading leaves out the pooler of a ViTModel and the decoder of a masked autoencoder, whose encoder
is written as a ViTModel.
"""

import dataclasses

from vit_jax.extras.formats.model_type import ModelType, rules
from vit_jax.extras.formats.model_types.blocks import OF_VIT, SIZES_OF_VIT, sizes

PLAIN = "ViTModel"
HEADED = "ViTForImageClassification"
VIT = ModelType(
  plain=PLAIN,
  headed=HEADED,
  names=OF_VIT,
  prefix="vit.",
  plain_prefix="vit.",
  computed=rules(HEADED, PLAIN, kinds=("vit",), **SIZES_OF_VIT),
  sizes=sizes,
  position_resizing="bicubic",
  processor="ViT",
  left_out=r"(vit\.)?(pooler\..*|embeddings\.mask_token)",
)
MASKED = "ViTMAEModel"
WITH_DECODER = "ViTMAEForPreTraining"
MAE = dataclasses.replace(
  VIT,
  plain=MASKED,
  headed="",
  computed=rules(MASKED, WITH_DECODER, kinds=("vit_mae",), **SIZES_OF_VIT),
  left_out=r"(vit\.)?embeddings\.mask_token|decoder\..*|mask_token",
  written=False,
)
OF_MSN = "ViTMSNModel"
OF_MSN_HEADED = "ViTMSNForImageClassification"
MSN = dataclasses.replace(
  VIT,
  plain=OF_MSN,
  headed=OF_MSN_HEADED,
  computed=rules(OF_MSN_HEADED, OF_MSN, kinds=("vit_msn",), layer_norm_eps=1e-6, **SIZES_OF_VIT),
  written=False,
)
