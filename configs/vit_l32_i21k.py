r"""ViT-L/32 on ImageNet-21k, 30 epochs (90 with :90) (Table 3).

  python -m vit_jax.main --config=configs/vit_l32_i21k.py \
    --config.data.train.source=tfds:NAME --config.data.train.split=train \
    --config.data.train.label_key=labels --config.model.num_classes=K

At 12.4 M images: 90,820 steps for 30 epochs and 272,461 steps for 90 epochs.
The paper's results after fine-tuning: ImageNet 80.99, ReaL 85.65, CIFAR-100 93.04 (Table 5).
The paper does not say for which of the two lengths.
ImageNet-21k is not in TFDS: give any folder or TFDS dataset of your own. Not run here: it needs
a pod.
"""

from vit_jax.recipes import pretraining

get_config = pretraining("ViT-L/32", "imagenet21k", epochs=(30, 90), learning_rate=1e-3)
