r"""ViT-H/14 on ImageNet-21k, 30 epochs (90 with :90) (Table 5).

  python -m vit_jax.main --config=configs/vit_h14_i21k.py \
    --config.data.train.source=tfds:NAME --config.data.train.split=train \
    --config.data.train.label_key=labels --config.model.num_classes=K

Table 3 has no row for this run of Table 5; the settings of ViT-L are our choice.
At 12.4 M images: 90,820 steps for 30 epochs and 272,461 steps for 90 epochs.
The paper's results after fine-tuning: ImageNet 85.13, ReaL 88.70, CIFAR-100 93.82 (Table 5).
ImageNet-21k is not in TFDS: give any folder or TFDS dataset of your own. Not run here: it needs
a pod.
"""

from vit_jax.recipes import pretraining

get_config = pretraining("ViT-H/14", "imagenet21k", epochs=(30, 90), learning_rate=1e-3)
