r"""R200x3 on JFT-300M, 14 epochs (Table 6).

  python -m vit_jax.main --config=configs/r200x3_jft.py \
    --config.data.train.source=tfds:NAME --config.data.train.split=train \
    --config.data.train.label_key=labels --config.model.num_classes=K

Table 3 has no row for it. Learning rate, decay and weight decay are those of its row for R152x1
and R152x2, the nearest in size; that is our choice.
At 303 M images: 1,035,645 steps.
The paper's results after fine-tuning: ImageNet 87.22, ReaL 90.15, CIFAR-100 93.53 (Table 6).
JFT-300M is not public: give any folder or TFDS dataset of your own. Not run here: it needs a pod.
"""

from vit_jax.recipes import pretraining

get_config = pretraining("R200x3", "jft", epochs=(14,), learning_rate=6e-4, resnet=True)
