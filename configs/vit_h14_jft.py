r"""ViT-H/14 on JFT-300M, 14 epochs (Table 3).

  python -m vit_jax.main --config=configs/vit_h14_jft.py \
    --config.data.train.source=tfds:NAME --config.data.train.split=train \
    --config.data.train.label_key=labels --config.model.num_classes=K

At 303 M images: 1,035,645 steps.
The paper's results after fine-tuning: ImageNet 88.08, ReaL 90.36, CIFAR-100 94.71 (Table 6);
ImageNet 88.55, ReaL 90.72 at 518 px (Table 2).
JFT-300M is not public: give any folder or TFDS dataset of your own. Not run here: it needs a pod.
"""

from vit_jax.recipes import pretraining

get_config = pretraining("ViT-H/14", "jft", epochs=(14,), learning_rate=3e-4)
