r"""ViT-B/16 on JFT-300M without labels, by masked patch prediction (Section 4.6, Appendix B.1.2).

  python -m vit_jax.main --config=configs/masked_vit_b16_jft.py \
    --config.data.train.source=tfds:NAME --config.data.train.split=train

1,000,000 steps. With configs/masked_vit_b16_jft.py:100k it takes 100,000 steps; the paper sees
little gain after these. Target and rate by argument: :1m,down4,0.15 (mean_color, down4 or pixels;
0.5 or 0.15). Any images will do: --config.data.train.source=folder:DIR --config.data.train.split=
--config.data.train.label_key= takes all images in a folder and below it.
The paper's result after fine-tuning on ImageNet: 79.9%, 2% above training from scratch.
JFT-300M is not public. Not run here: it needs a pod.
"""

from vit_jax.extras.masked_patches.recipe import masked

get_config = masked("ViT-B/16", "jft", length="1m")
