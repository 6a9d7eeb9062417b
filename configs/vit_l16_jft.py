r"""ViT-L/16 on JFT-300M, 7 epochs (14 with :14) (Table 3).

  python -m vit_jax.main --config=configs/vit_l16_jft.py \
    --config.data.train.source=tfds:NAME --config.data.train.split=train \
    --config.data.train.label_key=labels --config.model.num_classes=K

At 303 M images: 517,822 steps for 7 epochs and 1,035,645 steps for 14 epochs.
The paper's results after fine-tuning: ImageNet 86.30, ReaL 89.43, CIFAR-100 93.46; with 14 epochs
ImageNet 87.12, ReaL 89.99, CIFAR-100 94.04 (Table 6); ImageNet 87.76, ReaL 90.54 at 512 px (Table
2, which does not state the length).
JFT-300M is not public: give any folder or TFDS dataset of your own. Not run here: it needs a pod.
"""

from vit_jax.recipes import pretraining

get_config = pretraining("ViT-L/16", "jft", epochs=(7, 14), learning_rate=4e-4)
