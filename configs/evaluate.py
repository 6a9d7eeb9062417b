r"""Evaluations of weights or of a run, without training: no training steps are run.

  python -m vit_jax.main --mode=evaluate --config=configs/evaluate.py:SUITE,MODEL \
    --config.init_from=PATH

MODEL: the one that the weights belong to; ViT-B/16 where ",MODEL" is left out. PATH: .npz,
.msgpack, .safetensors, a folder of Hugging Face's, or the workdir of a run. SUITE:

  imagenet   ImageNet's validation set, 384 px; weights of another size score best at theirs
             :imagenet,ViT-L/16 --config.init_from=L_16.npz --config.data.image_size=512
  real       the same images with the ReaL labels; 3,163 without any are left out
             :real --config.init_from=B_16.npz
  v2         ImageNet-V2, matched frequency
             :v2 --config.init_from=B_16.npz
  a, r       ImageNet-A and ImageNet-R, scored among their 200 classes
             :a --config.init_from=B_16.npz
  sketch     ImageNet-Sketch
             :sketch --config.init_from=B_16.npz
  objectnet  the 113 classes that ImageNet shares; smaller side to 512, centre of 480 px
             :objectnet --config.init_from=B_16.npz
             --config.data.evaluate.objectnet.source=objectnet:DIR
  variants   all of these at 384 px, ObjectNet where its source is given
             :variants --config.init_from=B_16.npz
  few_shot   1, 5, 10 and 25 training images of each class of ImageNet, three draws, 224 px
             :few_shot --config.init_from=B_16.npz
  knn        the 20 nearest of a tenth of ImageNet's training images, 224 px
             :knn --config.init_from=B_16.npz
  own        your images: --config.data.evaluate.own.source=folder:DIR (DIR/class/*.jpg)
             :own --config.init_from=workdirs/mine --config.data.evaluate.own.source=folder:DIR

Few-shot and knn of other data: --config.few_shot.imagenet.train.source=... and .test.source. The
figures are printed and lie in WORKDIR/evaluation.json; of sets with one label an image, every
prediction, the accuracy of each class and the confusion matrix lie in WORKDIR/evaluation. All sets
but ObjectNet and folders must have been prepared by TFDS, such as with
`python tools/prepare_data.py build imagenet_v2/matched-frequency`; what is missing is said with
its command. Not run here on the real sets: they are large.
"""

from vit_jax.config import to_config_dict
from vit_jax.recipes import SUITES, choice, evaluation


def get_config(argument="imagenet,ViT-B/16"):
  """One suite for one model."""
  suite, _, model = argument.partition(",")
  return to_config_dict(evaluation(choice(suite, *SUITES), model or "ViT-B/16"))
