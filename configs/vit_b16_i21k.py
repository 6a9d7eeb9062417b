r"""ViT-B/16 on ImageNet-21k, 90 epochs (Table 3).

  python -m vit_jax.main --config=configs/vit_b16_i21k.py \
    --config.data.train.source=tfds:NAME --config.data.train.split=train \
    --config.data.train.label_key=labels --config.model.num_classes=K

At 12.4 M images: 272,461 steps.
The paper's results after fine-tuning: ImageNet 83.97, ReaL 88.35, CIFAR-100 91.67 (Table 5).
ImageNet-21k is not in TFDS: give any folder or TFDS dataset of your own. Not run here: it needs
a pod.
"""

from vit_jax.recipes import pretraining

get_config = pretraining("ViT-B/16", "imagenet21k", epochs=(90,), learning_rate=1e-3)
