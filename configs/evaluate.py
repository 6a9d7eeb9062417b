r"""Evaluations of weights or of a run, without training: no training steps are run.

  python -m vit_jax.main --mode=evaluate --config=configs/evaluate.py:SUITE \
    --config.init_from=PATH

PATH: .npz, .msgpack, .safetensors, a folder of Hugging Face's, or the workdir of a run. The model,
its classes and how images are prepared come from there; `SUITE,MODEL` refuses weights of any other
model. --config.data.image_size and --config.data.evaluate_resize prepare images in another way;
weights that do not tell their size, such as a ResNet's .npz, need the first. A run is computed in
the type that it was trained in, weights from files in float32 (config.model.compute_dtype). SUITE:

  imagenet   ImageNet's validation set
             :imagenet --config.init_from=L_16.npz
  real       the same images with the ReaL labels; 3,163 without any are left out
             :real --config.init_from=B_16.npz
  v2         ImageNet-V2, matched frequency
             :v2 --config.init_from=B_16.npz
  a, r       ImageNet-A and ImageNet-R, scored among their 200 classes
             :a --config.init_from=B_16.npz
  sketch     ImageNet-Sketch
             :sketch --config.init_from=B_16.npz
  objectnet  the 113 classes that ImageNet shares; smaller side to 512, centre of 480 px, whatever
             the weights' size
             :objectnet --config.init_from=B_16.npz
             --config.data.evaluate.objectnet.source=objectnet:DIR
  variants   all of these at the weights' size, ObjectNet (the smaller side to 512/480 of it) where
             its source is given
             :variants --config.init_from=B_16.npz
  few_shot   1, 5, 10 and 25 training images of each class of ImageNet, three draws, 224 px
             :few_shot --config.init_from=B_16.npz
  knn        the 20 nearest of a tenth of ImageNet's training images, 224 px
             :knn --config.init_from=B_16.npz
  own        your images: --config.data.evaluate.own.source=folder:DIR (DIR/class/*.jpg)
             :own --config.init_from=workdirs/mine --config.data.evaluate.own.source=folder:DIR

The classes of weights are compared with the data's by name. Weights that do not name theirs need
--config.class_names=FILE (a name a line, in the order of the head), or =data for the order of the
data (sorted folder names, or TFDS's); but for ImageNet's 1,000, whose order all published weights
share.
Few-shot of other data: --config.few_shot.imagenet.train.source=... and .test.source; knn:
--config.nearest.imagenet.train.source=... and .test.source. The figures are printed and lie in
WORKDIR/evaluation.json; of sets with one label an image, every prediction, the accuracy of each
class and the confusion matrix lie in WORKDIR/evaluation. All sets but ObjectNet and folders must
have been prepared by TFDS, such as with
`python tools/prepare_data.py build imagenet_v2/matched-frequency`; what is missing is said with
its command. Not run here on the real sets: they are large.
"""

from vit_jax.config import to_config_dict
from vit_jax.recipes import SUITES, choice, evaluation


def get_config(argument="imagenet"):
  """One suite, for one model or for any."""
  suite, _, model = argument.partition(",")
  return to_config_dict(evaluation(choice(suite, *SUITES), model))
