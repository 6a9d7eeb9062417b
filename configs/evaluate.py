r"""Evaluates weights or a run; there are no training steps.

  python -m vit_jax.main --mode=evaluate --config=configs/evaluate.py:SUITE \
    --config.init_from=PATH

PATH: .npz, .msgpack, .safetensors, a folder in Hugging Face's format, or the workdir of a run. The
weights decide the model, its classes and how images are prepared; with `SUITE,MODEL`, weights of
any other model are refused. --config.data.image_size and --config.data.evaluate_resize change how
images are prepared; weights without an image size, such as a ResNet's .npz, need the first. A run
is evaluated in the type that it was trained in, and weights from files in float32
(config.model.compute_dtype). SUITE:

  imagenet   ImageNet's validation set
             :imagenet --config.init_from=L_16.npz
  real       the same images with the ReaL labels; 3,163 images without labels are skipped
             :real --config.init_from=B_16.npz
  v2         ImageNet-V2, matched frequency
             :v2 --config.init_from=B_16.npz
  a, r       ImageNet-A and ImageNet-R, scored among their 200 classes
             :a --config.init_from=B_16.npz
  sketch     ImageNet-Sketch
             :sketch --config.init_from=B_16.npz
  objectnet  the 113 classes shared with ImageNet; the smaller side is resized to 512 px and the
             centre of 480 px is cropped, whatever the size of the weights
             :objectnet --config.init_from=B_16.npz
             --config.evaluate.objectnet.source=objectnet:DIR
  variants   all of these at the size of the weights; ObjectNet (smaller side 512/480 of this size)
             only if its source is given
             :variants --config.init_from=B_16.npz
  few_shot   linear probes with 1, 5, 10 and 25 training images of each class of ImageNet, three
             draws, 224 px
             :few_shot --config.init_from=B_16.npz
  knn        the 20 nearest neighbours in a tenth of ImageNet's training images, 224 px
             :knn --config.init_from=B_16.npz

WEIGHTS,DATA in place of SUITE evaluates weights or a run on your own images: a folder with a folder
of images for each class, or any other source (docs/data.md), and ,label_key=NAME behind it names
its column of labels. Of data that comes in parts, such as
folders called train and test, the test images are scored, or else those for validation.

The classes of the weights are compared with the classes of the data by name. Weights without class
names need --config.class_names=FILE (one name per line, in the order of the head), or =data for the
order of the data (sorted folder names, or the order of TFDS). The 1,000 classes of ImageNet need no
names, because all published weights have them in the same order.
For few_shot and knn on other data, give --config.evaluate.imagenet.train.source=... and
.train.split=..., .test.source=... and .test.split=...; an empty split is all of a folder.
The metrics are printed and written to WORKDIR/evaluation.json. For sets with one label per image,
WORKDIR/evaluation has every prediction, the accuracy of each class and the confusion matrix.
All sets except ObjectNet and folders must be prepared with TFDS first, for example with
`vit-jax prepare build imagenet_v2/matched-frequency`; if one is missing, the message
gives the command. Not run here on the real sets, because they are large.
"""

from vit_jax.config import to_config_dict
from vit_jax.recipes import SUITES, choice, evaluation, own_images
from vit_jax.recipes.following import unchanged
from vit_jax.recipes.loading import keys_of, weights_and_data


def get_config(argument="imagenet", replace=unchanged):
  """One suite, for one model or for any."""
  suite, _, model = argument.partition(",")
  data, keys = keys_of(argument)
  if own := weights_and_data(data, named=suite in SUITES):
    return to_config_dict(own_images.evaluation(*own, replace=replace, **keys))
  return to_config_dict(evaluation(choice(suite, *SUITES), model))
