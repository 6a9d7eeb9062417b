r"""R152x2 on JFT-300M, 7 epochs (Table 3), 14 with :14 (Table 6).

  python -m vit_jax.main --config=configs/r152x2_jft.py \
    --config.data.train.source=tfds:NAME --config.data.train.split=train \
    --config.data.train.label_key=labels --config.model.num_classes=K

Table 3 gives 7 epochs only; the run of 14 epochs has the same settings.
At 303 M images: 517,822 steps for 7 epochs and 1,035,645 steps for 14 epochs.
The paper's results after fine-tuning: ImageNet 84.97, ReaL 89.69, CIFAR-100 92.05; with 14 epochs
ImageNet 85.56, ReaL 89.89, CIFAR-100 91.92 (Table 6).
JFT-300M is not public: give any folder or TFDS dataset of your own. Not run here: it needs a pod.
"""

from vit_jax.recipes import pretraining

get_config = pretraining("R152x2", "jft", epochs=(7, 14), learning_rate=6e-4, resnet=True)
