"""ViT-L/32 on ImageNet, 300 epochs (Table 3).

  python -m vit_jax.main --config=configs/vit_l32_i1k.py

At 1,281,167 images: 93,835 steps.
The paper's results after fine-tuning: ImageNet 71.16, ReaL 77.83, CIFAR-100 87.07 (Table 5).
Needs `vit-jax prepare build imagenet2012`. Not run here: it needs a pod.
"""

from vit_jax.recipes import pretraining

get_config = pretraining("ViT-L/32", "imagenet", epochs=(300,), learning_rate=3e-3)
