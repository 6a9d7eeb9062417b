r"""ViT-L/16 on ImageNet-21k, 30 epochs (90 with :90) (Table 3).

  python -m vit_jax.main --config=configs/vit_l16_i21k.py \
    --config.data.train.source=tfds:NAME --config.data.train.split=train \
    --config.data.train.label_key=labels --config.model.num_classes=K

At 12.4 M images: 90,820 steps for 30 epochs and 272,461 steps for 90 epochs.
The paper's results after fine-tuning: ImageNet 85.15, ReaL 88.40, CIFAR-100 93.44 (Table 5);
ImageNet 85.30 at 512 px (Table 2). The paper does not say which length each is.
ImageNet-21k is not in TFDS: give any folder or TFDS dataset of your own. Not run here: it needs
a pod.
"""

from vit_jax.recipes import pretraining

get_config = pretraining("ViT-L/16", "imagenet21k", epochs=(30, 90), learning_rate=1e-3)
