"""ViT-L/16 on ImageNet, 300 epochs (Table 3).

  python -m vit_jax.main --config=configs/vit_l16_i1k.py

At 1,281,167 images: 93,835 steps.
The paper's results after fine-tuning: ImageNet 76.53, ReaL 82.19, CIFAR-100 86.35 (Table 5).
Needs `vit-jax prepare build imagenet2012`. Not run here: it needs a pod.
"""

from vit_jax.recipes import pretraining

get_config = pretraining("ViT-L/16", "imagenet", epochs=(300,), learning_rate=3e-3)
