r"""R152x1 on JFT-300M, 7 epochs (Table 3).

  python -m vit_jax.main --config=configs/r152x1_jft.py \
    --config.data.train.source=tfds:NAME --config.data.train.split=train \
    --config.data.train.label_key=labels --config.model.num_classes=K

At 303 M images: 517,822 steps.
The paper's results after fine-tuning: ImageNet 81.88, ReaL 87.96, CIFAR-100 90.22 (Table 6).
JFT-300M is not public: give any folder or TFDS dataset of your own. Not run here: it needs a pod.
"""

from vit_jax.recipes import pretraining

get_config = pretraining("R152x1", "jft", epochs=(7,), learning_rate=6e-4, resnet=True)
