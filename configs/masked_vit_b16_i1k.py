r"""ViT-B/16 on ImageNet without labels, by masked patch prediction (Section 4.6, Appendix B.1.2).

  python -m vit_jax.main --config=configs/masked_vit_b16_i1k.py

100,000 steps, about 320 epochs; :1m takes 1,000,000. Target and rate by argument: :100k,down4,0.15
(mean_color, down4 or pixels; 0.5 or 0.15). The paper says that pre-training on ImageNet gains about
as much as on JFT-300M, where fine-tuning on ImageNet then gives 79.9%; it does not say for how many
steps. Not run here: it needs a pod.
"""

from vit_jax.extras.masked_patches.recipe import masked

get_config = masked("ViT-B/16", "imagenet", length="100k")
