r"""R50x2 on JFT-300M, 7 epochs (Table 3).

  python -m vit_jax.main --config=configs/r50x2_jft.py \
    --config.data.train.source=tfds:NAME --config.data.train.split=train \
    --config.data.train.label_key=labels --config.model.num_classes=K

At 303 M images: 517,822 steps.
The paper's results after fine-tuning: ImageNet 82.12, ReaL 87.94, CIFAR-100 89.20 (Table 6).
JFT-300M is not public: give any folder or TFDS dataset of your own. Not run here: it needs a pod.
"""

from vit_jax.recipes import pretraining

get_config = pretraining("R50x2", "jft", epochs=(7,), learning_rate=1e-3, resnet=True)
