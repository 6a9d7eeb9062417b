"""Hugging Face folders: round trip, and models that the format cannot express."""

import io
import json
import textwrap

import cv2
import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file, save_file

from tests import modules
from tests.data.pictures import png16
from tests.weights import families
from vit_jax import models, weights
from vit_jax.data.images import decode, evaluate_image
from vit_jax.extras.formats.model_type import ACTIVATIONS
from vit_jax.inference import load
from vit_jax.inference.predict import predict
from vit_jax.models.recognition import settings_of
from vit_jax.storage.tree import flatten
from vit_jax.weights import Weights, card
from vit_jax.weights.card import Card
from vit_jax.weights.resizing import resize_table

NAMES = ("bag", "boot", "coat", "dress", "shirt")


@pytest.fixture
def folder(tmp_path):
  path = tmp_path / "hf"
  weights.write(path, Weights(families.params("vit"), Card(image_size=16, class_names=NAMES)))
  return path


def test_notes_are_those_of_the_newest_export_until_somebody_changes_them(folder):
  """They warn of a filter only where it differs."""
  notes, params = folder / "README.md", families.params("vit")
  for words in (
    dict(image_size=16),
    dict(image_size=32, resize=40),
    dict(image_size=32),
    dict(image_size=16, resize=20, resampling="torchvision_bicubic"),
    dict(image_size=16, resampling="torchvision_bicubic"),
    dict(image_size=16, resampling="pillow_bicubic"),
  ):
    weights.write(folder, Weights(params, Card(**words)))
    text = notes.read_text()
    assert card.DEEP in text
    assert ("scale = 40 /" in text) == (words.get("resize") == 40)
    assert ("rounds the margin" in text) == (words.get("resize") == 20)
    warns = f"larger than the model's, {words['image_size']} pixels"
    assert (warns in text) == ("resampling" not in words)
    cases = {2: "two", 3: "three"}[text.count("\n- ")]
    assert f"In {cases} cases" in text
    assert "vit_jax exported this model." in text
  notes.write_text(f"{notes.read_text()}Mine.")
  weights.write(folder, Weights(params, Card(image_size=16)))
  assert notes.read_text().endswith("Mine.")
  assert "In two cases" in notes.read_text()
  weights.write(folder.parent / "w.npz", Weights(params, Card(image_size=16)))
  assert json.loads((folder.parent / "w.npz.json").read_text())["note"] == card.DEEP


@pytest.mark.parametrize("words", [{}, {"resize": 20}, {"resampling": "pillow_bicubic"}])
def test_notes_of_an_export_by_0_2_0_are_replaced(folder, words):
  notes, params = folder / "README.md", families.params("vit")
  weights.write(folder, Weights(params, Card(16, **words)))
  notes.write_text(notes.read_text().replace("exported this model", "trained this model"))
  centre = Card(16, resize=20, resampling="torchvision_bicubic")
  weights.write(folder, Weights(params, centre))
  assert "rounds the margin" in notes.read_text()


def test_what_the_notes_say_of_16_bits_is_so():
  samples = np.linspace(0, 65535, 256).astype(np.uint16).reshape(16, 16)
  data = png16(samples)
  with Image.open(io.BytesIO(data)) as image:
    clipped = np.asarray(image.convert("RGB"))
  np.testing.assert_array_equal(clipped[..., 0], np.minimum(samples, 255))
  np.testing.assert_array_equal(decode(data, max_pixels=256)[..., 0], samples // 256)


def both_pixels(folder, image, resize=0, **how):
  """An image of the PIL as this project prepares it, and as transformers' pipeline does."""
  transformers = pytest.importorskip("transformers", reason="transformers is not installed")
  stream = io.BytesIO()
  image.save(stream, "PNG")
  ours = evaluate_image(stream.getvalue(), size=16, resize=resize, max_pixels=2**20, **how)
  processor = transformers.AutoImageProcessor.from_pretrained(folder)
  image = transformers.image_utils.load_image(Image.open(stream))
  theirs = processor(image, return_tensors="np")["pixel_values"][0]
  return ours.astype(float), np.round(127.5 * theirs.transpose(1, 2, 0) + 127.5)


def test_what_the_notes_say_of_the_centre_is_so(tmp_path):
  how = dict(resize=16, resampling="torchvision_bicubic")
  weights.write(tmp_path, Weights(families.params("vit"), Card(16, **how)))
  differences = []
  for width in range(16, 24):
    columns = np.tile(np.arange(width, dtype=np.uint8)[:, None], (16, 1, 3))
    ours, theirs = both_pixels(tmp_path, Image.fromarray(columns), **how)
    differences.append(int(ours[0, 0, 0] - theirs[0, 0, 0]))
  assert differences == [0, 0, 0, 1, 0, 0, 0, 1]


def test_what_the_notes_say_of_transparency_is_so(folder):
  pixels = np.zeros((16, 16, 4), np.uint8)
  pixels[4:12, 4:12] = 200, 30, 30, 255
  ours, theirs = both_pixels(folder, Image.fromarray(pixels))
  assert (ours[0, 0] == 255).all()
  assert (theirs[0, 0] == 0).all()
  np.testing.assert_array_equal(ours[8, 8], theirs[8, 8])


def test_what_the_notes_say_of_large_images_is_so(folder):
  pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
  ours, theirs = both_pixels(folder, Image.fromarray(pixels))
  assert np.abs(ours - theirs).mean() > 20
  assert "(16, 16))" in (folder / "README.md").read_text()
  resized = Image.fromarray(cv2.resize(pixels, (16, 16)))
  assert np.abs(ours - both_pixels(folder, resized)[1]).max() <= 1


@pytest.mark.parametrize(
  ("family", "what"),
  [
    ("bit", r"stages=\(2, 1\)"),
    ("hybrid", "stem_width=32"),
    ("representation", "pre_logits/"),
    ("map", "head/"),
    ("axial", "axial=True"),
    ("none", "positions='none'"),
    ("2d", "positions='2d'"),
    ("relative", "positions='relative'"),
    ("1d_shared", "position_place='every_layer_shared'"),
    ("later", "qk_norm=True"),
  ],
)
def test_what_the_format_has_no_place_for_is_refused(tmp_path, family, what):
  with pytest.raises(ValueError, match=rf"Hugging Face's \w+ has no place for {what}"):
    weights.write(tmp_path / "hf", Weights(families.params(family), None))
  assert not (tmp_path / "hf").exists()


def test_a_centre_crop_goes_out_and_comes_back(tmp_path):
  card, folder = Card(image_size=16, resize=20), tmp_path / "hf"
  weights.write(folder, Weights(families.params("vit"), card))
  assert weights.read(folder).card.resize == 20
  pixels = np.random.default_rng(0).integers(0, 256, (12, 18, 3), np.uint8)
  ours, theirs = both_pixels(folder, Image.fromarray(pixels), resize=20)
  assert np.abs(ours - theirs).max() <= 1
  code = (folder / "README.md").read_text().rpartition("processor:")[2]
  large = {"image": Image.fromarray(np.repeat(np.repeat(pixels, 9, 0), 9, 1))}
  ours, _ = both_pixels(folder, large["image"], resize=20)
  exec(textwrap.dedent(code), large)
  _, theirs = both_pixels(folder, Image.fromarray(large["image"]))
  assert np.abs(ours - theirs).max() <= 1


def test_a_folder_whose_other_processor_would_be_read_first_is_not_written_to(tmp_path):
  whole = Weights(families.params("vit"), Card(image_size=16))
  weights.write(tmp_path / "hf", whole)
  weights.write(tmp_path / "hf", whole)
  (tmp_path / "hf/processor_config.json").write_text("{}")
  with pytest.raises(ValueError, match=r"processor_config\.json would be read before the prepro"):
    weights.write(tmp_path / "hf", whole)


IMAGENET = dict(image_mean=[0.485, 0.456, 0.406], image_std=[0.229, 0.224, 0.225])
OF_DEIT = dict(
  feature_extractor_type="DeiTFeatureExtractor",
  image_processor_type=None,
  size=22,
  crop_size=16,
  do_center_crop=True,
  resample=3,
)


@pytest.mark.parametrize("processor", [{}, OF_DEIT])
def test_mean_deviation_and_crop_come_with_weights(folder, processor):
  before = load(folder)
  change(folder / "preprocessor_config.json", **IMAGENET, **processor)
  images = families.images()
  mean, deviation = (np.float32(IMAGENET[f"image_{key}"]) for key in ("mean", "std"))
  theirs = ((images + 1) / 2 - mean) / deviation
  expected, _ = before.module.apply({"params": before.params}, theirs, train=False)
  loaded = load(folder)
  got, _ = loaded.module.apply({"params": loaded.params}, images, train=False)
  np.testing.assert_allclose(got, expected, atol=1e-5, rtol=0)
  assert (loaded.card.resize, loaded.card.squeeze) == (processor.get("size", 0), bool(processor))
  assert loaded.card.resampling == ("pillow_bicubic" if processor else "bilinear")


@pytest.mark.parametrize("alone", [True, False])
def test_transformers_5_writes_the_processor_into_another_file(folder, alone):
  """Which counts if both are there."""
  path = folder / "preprocessor_config.json"
  values = json.loads(path.read_text()) | OF_DEIT
  if alone:
    path.unlink()
  nested = {"processor_class": "CLIPProcessor", "image_processor": values}
  (folder / "processor_config.json").write_text(json.dumps(nested))
  card = weights.read(folder).card
  assert (card.image_size, card.resize, card.squeeze) == (16, 22, True)
  (folder / "processor_config.json").write_text(json.dumps({"image_processor": 7}))
  with pytest.raises(
    ValueError, match=r"processor_config\.json does not say how images are prepared"
  ):
    weights.read(folder)


def test_a_processor_in_the_old_file_counts_beside_one_of_texts(folder):
  (folder / "processor_config.json").write_text(json.dumps({"processor_class": "CLIPProcessor"}))
  change(folder / "preprocessor_config.json", **OF_DEIT)
  assert weights.read(folder).card.resize == 22


def test_images_that_nothing_describes_are_said(folder, caplog):
  weights.read(folder)
  assert "Taken as usual" not in caplog.text
  assert not weights.read(folder).card.guessed
  (folder / "preprocessor_config.json").unlink()
  assert weights.read(folder).card.guessed
  assert f"{folder} has no preprocessor_config.json. Taken as usual for its" in caplog.text


def test_what_nobody_of_ours_wrote_is_resized_as_transformers_does(folder):
  """Our own folders keep our rules, those of earlier versions too, until the filter is edited."""
  read = lambda: (weights.read(folder).card.resampling, weights.read(folder).card.position_resizing)
  assert read() == ("bilinear", "bilinear_aligned")
  model, images = folder / "config.json", folder / "preprocessor_config.json"
  change(images, resample=3)
  assert read() == ("pillow_bicubic", "bilinear_aligned")
  change(images, resample=2)
  change(model, resampling=None, position_resizing=None)
  assert read() == ("bilinear", "bilinear_aligned")
  values = json.loads(model.read_text())
  model.write_text(json.dumps({key: x for key, x in values.items() if "vit_jax" not in key}))
  assert read() == ("pillow_bilinear", "bicubic")
  images.unlink()
  assert read() == ("pillow_bilinear", "bicubic")


def test_a_folder_is_for_images_of_the_size_that_the_card_says(tmp_path):
  """The positions of the weights may be for others; a ViT of Transformers does not resize them."""
  params, card = families.params("vit"), Card(image_size=24, position_resizing="bicubic")
  weights.write(tmp_path / "hf", Weights(params, card))
  read, table = weights.read(tmp_path / "hf"), "Transformer/posembed_input/pos_embedding"
  assert read.card.image_size == 24
  expected = resize_table(flatten(params)[table], (4, 4), (6, 6), before=1, rule="bicubic")
  np.testing.assert_array_equal(flatten(read.params)[table], expected)


def test_positions_that_the_library_resizes_itself_stay_as_they_are(tmp_path):
  """DINOv2 was trained with larger images than its processor makes."""
  fields = families.VIT | dict(layer_scale=True, activation="gelu")
  module = models.create("ViT-B/4", **fields)
  params = modules.parameters(module, families.images(32), train=False)
  for rule, side in (("bicubic", 32), ("bicubic_antialiased", 16)):
    card = Card(16, resize=18, position_resizing=rule, model=settings_of(module))
    weights.write(tmp_path / rule, Weights(params, card))
    config = json.loads((tmp_path / rule / "config.json").read_text())
    assert (config["model_type"], config["image_size"]) == ("dinov2", side)
    assert weights.read(tmp_path / rule).card.image_size == 16
  families.assert_same_bits(weights.load(tmp_path / "bicubic"), params)


@pytest.mark.parametrize("positions", ["sincos2d", "sincos2d_mae"])
@pytest.mark.parametrize("trained", [False, True])
def test_what_transformers_trained_further_can_be_read(tmp_path, positions, trained):
  """It trains the table of fixed positions, and keeps what we say of the weights before."""
  module = families.module("vit", positions=positions)
  params = modules.parameters(module, families.images(), train=False)
  known = Card(16, model=settings_of(module), representation="patches", average=True)
  weights.write(tmp_path / "hf", Weights(params, known))
  if trained:
    file = tmp_path / "hf" / "model.safetensors"
    arrays = load_file(file)
    arrays["vit.embeddings.position_embeddings"] += 0.01
    save_file(arrays, file)
    change(tmp_path / "hf" / "config.json", transformers_version="5.23.0")
  model = load(tmp_path / "hf")
  assert model.module.positions == ("1d" if trained else positions)
  assert model.card.representation == ("pre_logits" if trained else "patches")
  assert model.card.average is not trained
  weights.write(tmp_path / "again", model.read)
  families.assert_same_bits(weights.load(tmp_path / "again"), model.read.params)


def test_biases_of_offsets_go_out_and_come_back(tmp_path):
  module = families.module("vit", positions="relative_table", qkv_bias="no_key")
  params = modules.parameters(module, families.images(), train=False)
  weights.save(tmp_path / "hf", params, module)
  families.assert_same_bits(weights.load(tmp_path / "hf"), params)


@pytest.mark.parametrize(
  ("pool", "final_norm"), [("class_token", "pooled"), ("gap_beside_token", "tokens")]
)
def test_a_beit_normalises_what_it_pools_and_nothing_else(tmp_path, pool, final_norm):
  fields = dict(pool=pool, final_norm=final_norm, qkv_bias="no_key")
  module = families.module("vit", **fields)
  params = modules.parameters(module, families.images(), train=False)
  message = f"Beit.* has no place for final_norm={final_norm!r} with pool={pool!r}"
  with pytest.raises(ValueError, match=message):
    weights.save(tmp_path / "hf", params, module)


def test_positions_of_registers_become_part_of_the_registers(tmp_path):
  module = families.module("vit", registers=3, layer_scale=True, activation="gelu")
  params = modules.parameters(module, families.images(), train=False)
  weights.save(tmp_path / "hf", params, module)
  again = weights.load(tmp_path / "hf")
  assert not flatten(again)["Transformer/posembed_input/pos_embedding"][:, 1:4].any()
  found, expected = (modules.run(module, tree, families.images())[0] for tree in (again, params))
  np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_a_folder_without_the_size_of_its_images_is_refused(tmp_path):
  fields = dict(positions="none", rotary="dinov3", registers=2, qkv_bias="no_key")
  module = families.module("vit", **fields, layer_scale=True, norm_epsilon=1e-5)
  params = modules.parameters(module, families.images(), train=False)
  del params["head"]
  with pytest.raises(ValueError, match="the size of its images, which its parameters do not tell"):
    weights.save(tmp_path / "hf", params, module)
  assert not (tmp_path / "hf").exists()
  weights.save(tmp_path / "hf", params, module, image_size=16)
  assert weights.read(tmp_path / "hf").card.image_size == 16


def change(path, **settings):
  path.write_text(json.dumps(json.loads(path.read_text()) | settings))


MODEL, IMAGES = "config.json", "preprocessor_config.json"


@pytest.mark.parametrize(
  ("file", "settings", "message"),
  [
    (MODEL, dict(hidden_act="relu"), "hidden_act is 'relu'"),
    (MODEL, dict(hidden_act="x" * 10**6), "hidden_act is 'x{99} and must"),
    (MODEL, dict(layer_norm_eps="1e-6"), "layer_norm_eps is '1e-6'"),
    (MODEL, dict(layer_norm_eps=float("nan")), "layer_norm_eps is nan and must be above 0, at"),
    (MODEL, dict(hidden_act="relu", layer_norm_eps=1), "hidden_act is .*; layer_norm_eps is 1 "),
    (MODEL, dict(num_channels=1), "num_channels is 1 in config.json, and 3 by the arrays"),
    (MODEL, dict(problem_type="regression"), "problem_type is 'regression'"),
    (MODEL, dict(pruned_heads={"0": [0]}), "pruned_heads is"),
    (MODEL, dict(quantization_config={"bits": 8}), "quantization_config is"),
    (MODEL, dict(architectures=["BertModel"]), r"architectures is \['BertModel'\] and must be"),
    (MODEL, dict(architectures=["ViTModel"]), "architectures is .*'ViTModel'.* and .*'ViTFor"),
    (MODEL, dict(hidden_size="32"), "hidden_size is '32' in config.json, and 32 by the arrays"),
    (MODEL, dict(num_hidden_layers=10**12), "num_hidden_layers is 10{12} in"),
    (MODEL, dict(intermediate_size=65), "intermediate_size is 65"),
    (MODEL, dict(patch_size=8), "patch_size is 8"),
    (MODEL, dict(image_size=24), "image_size is 24 in config.json, and 16 by"),
    (MODEL, dict(image_size=18), "makes images of 16 pixels, and image_size is 18"),
    (MODEL, dict(num_attention_heads=0), "num_attention_heads is 0 and must be"),
    (MODEL, dict(num_attention_heads=3), "attention.* cannot have the shape"),
    (MODEL, dict(id2label={"1": "a", "2": "b"}), "id2label must name the classes 0, 1, 2"),
    (MODEL, dict(id2label=["a"]), "id2label must name the classes 0, 1, 2"),
    (MODEL, dict(id2label={"0": "a"}), "names 1 classes; the head of the weights has 5"),
    (IMAGES, dict(image_mean=[0.485, 0.456]), "images have 3 channels, and its mean"),
    (IMAGES, OF_DEIT | dict(crop_size=20), "makes images of 20 pixels, and image_size is 16"),
    (IMAGES, OF_DEIT | dict(size=10), "crop_size is .*16}, no square inside the size .*10}"),
    (MODEL, dict(model_type="swin"), r"it has windows of attention \(model_type 'swin'\)"),
    (MODEL, dict(model_type="a\x1b"), r"model_type is 'a\\x1b' in config.json; read are vit, vit"),
    (MODEL, dict(model_type=["vit"]), r"model_type is \['vit'\] in config.json; read are vit"),
    (IMAGES, dict(do_resize=False), "do_resize is False"),
    (IMAGES, dict(do_center_crop=True), "crop_size is .*224}, no square inside the size .*16}"),
    (IMAGES, dict(resample=6), "resample is 6"),
    (IMAGES, dict(resample=True), "resample is True"),
    (IMAGES, dict(size={"shortest_edge": 256}), "size is {'shortest_edge': 256}"),
    (IMAGES, dict(size={"height": 16, "width": 18}), "size is .*18}, no square"),
    (IMAGES, dict(size={"shortest_edge": 16, "longest_edge": 20}), "size is .*20}, no square"),
    (IMAGES, dict(size={}), "size is {}, no square"),
    (IMAGES, dict(size=0), "size is 0 and must be"),
    (IMAGES, dict(size=True), "size is True and must be"),
    (IMAGES, dict(rescale_factor=0), "rescale_factor is 0"),
    (IMAGES, dict(do_pad=True), "do_pad is True"),
    (IMAGES, dict(do_flip_channel_order=True), "do_flip_channel_order is True"),
    (IMAGES, dict(auto_map={"AutoImageProcessor": "x"}), "has auto_map, which this project does"),
    (IMAGES, dict(crop_pct=0.875, offset=True), "has crop_pct, offset, which this project does"),
    (IMAGES, dict(image_processor_type="ConvNextImageProcessor"), "is of a 'ConvNextImageProc"),
    (IMAGES, dict(image_processor_type=7), "is of a 7; known are the processors of ViT, DeiT"),
  ],
)
def test_what_we_compute_otherwise_is_refused(folder, file, settings, message):
  change(folder / file, **settings)
  with pytest.raises(ValueError, match=message):
    weights.read(folder)


def test_missing_keys_are_what_transformers_takes_for_them(folder):
  path = folder / "config.json"
  settings = json.loads(path.read_text())
  del settings["hidden_act"], settings["layer_norm_eps"]
  path.write_text(json.dumps(settings))
  card = weights.read(folder).card
  assert (card.model.activation, card.model.norm_epsilon) == ("gelu", 1e-12)
  ours, theirs = both(folder)
  np.testing.assert_allclose(theirs, ours, atol=1e-5, rtol=0)


def test_two_classes_may_have_the_names_that_transformers_leaves_out(tmp_path):
  params = families.params("vit")
  params["head"] = {name: array[..., :2] for name, array in params["head"].items()}
  weights.write(tmp_path / "hf", Weights(params, None))
  change(tmp_path / "hf/config.json", id2label=None)
  assert weights.read(tmp_path / "hf").class_names() == ("LABEL_0", "LABEL_1")


# Every key of transformers' config, with a value that differs from our folders'.
CHANGES = dict(
  architectures=["ViTModel"],
  attention_probs_dropout_prob=0.5,
  chunk_size_feed_forward=2,
  encoder_stride=8,
  hidden_act="gelu",
  hidden_dropout_prob=0.5,
  hidden_size=64,
  id2label={str(i): name.upper() for i, name in enumerate(NAMES)},
  image_size=32,
  initializer_range=0.5,
  intermediate_size=128,
  is_encoder_decoder=True,
  label2id={name: 4 - i for i, name in enumerate(NAMES)},
  layer_norm_eps=1e-3,
  model_type="vit_mae",
  num_attention_heads=4,
  num_channels=1,
  num_hidden_layers=1,
  output_attentions=True,
  output_hidden_states=True,
  patch_size=2,
  pooler_act="relu",
  pooler_output_size=7,
  problem_type="multi_label_classification",
  qkv_bias=False,
  transformers_version="4.0.0",
)
# Keys that do not change what the model computes.
APART = {"dtype", "torch_dtype", "_name_or_path", "return_dict"}


def test_every_key_of_transformers_is_tried():
  """If a later version of transformers adds a key, add it to this test first."""
  transformers = pytest.importorskip("transformers", reason="transformers is not installed")
  keys = transformers.ViTConfig().to_dict().keys() - APART
  assert keys <= CHANGES.keys(), keys - CHANGES.keys()


def both(folder):
  """Our logits and those of transformers; None if either refuses the folder."""
  transformers = pytest.importorskip("transformers", reason="transformers is not installed")
  torch = pytest.importorskip("torch", reason="torch is not installed")
  images = families.images()
  try:
    loaded = load(folder)
    ours = loaded.module.apply({"params": loaded.params}, images, train=False)[0]
  except ValueError:
    return None, None
  model = transformers.ViTForImageClassification.from_pretrained(folder).eval()
  with torch.no_grad():
    theirs = model(torch.from_numpy(images.transpose(0, 3, 1, 2).copy()))
  return ours, getattr(theirs, "logits", theirs[0]).numpy()


def test_transformers_gives_our_logits(folder):
  """Compares with the library itself, if it is installed; docs/paper.md has the figure."""
  ours, theirs = both(folder)
  assert ours.std() > 0.1
  np.testing.assert_allclose(theirs, ours, atol=1e-5, rtol=0)


@pytest.mark.parametrize("key", CHANGES)
def test_a_changed_key_is_computed_as_transformers_does_or_refused(folder, key):
  change(folder / "config.json", **{key: CHANGES[key]})
  ours, theirs = both(folder)
  assert ours is None or np.abs(ours - theirs).max() < 1e-5
  assert (ours is not None) or key not in ("hidden_act", "layer_norm_eps")


@pytest.mark.parametrize("act", [*ACTIVATIONS["gelu"], *ACTIVATIONS["gelu_tanh"]])
def test_every_name_of_our_gelus(folder, act):
  change(folder / "config.json", hidden_act=act)
  ours, theirs = both(folder)
  np.testing.assert_allclose(theirs, ours, atol=1e-5, rtol=0)


def test_what_transformers_saves_is_read(folder, tmp_path):
  transformers = pytest.importorskip("transformers", reason="transformers is not installed")
  pytest.importorskip("torch", reason="torch is not installed")
  model = transformers.ViTForImageClassification.from_pretrained(folder)
  model.save_pretrained(tmp_path / "theirs")
  families.assert_same_bits(weights.load(tmp_path / "theirs"), families.params("vit"))
  model.save_pretrained(tmp_path / "parts", max_shard_size="10KB")
  assert len(list((tmp_path / "parts").glob("model-*.safetensors"))) > 2
  families.assert_same_bits(weights.load(tmp_path / "parts"), families.params("vit"))


@pytest.mark.parametrize("pooler", [True, False])
def test_a_vit_model_that_was_saved_alone_is_read(tmp_path, caplog, pooler):
  """Its names lack the part "vit." that they have in a model with a head."""
  transformers = pytest.importorskip("transformers", reason="transformers is not installed")
  torch = pytest.importorskip("torch", reason="torch is not installed")
  sizes = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
  config = transformers.ViTConfig(image_size=16, patch_size=4, **sizes)
  model = transformers.ViTModel(config, add_pooling_layer=pooler).eval()
  model.save_pretrained(tmp_path)
  loaded, images = load(tmp_path), families.images()
  assert pooler == ("images do not need them: 'pooler.dense" in caplog.text)
  _, features = loaded.module.apply({"params": loaded.params}, images, train=False)
  with torch.no_grad():
    theirs = model(torch.from_numpy(images.transpose(0, 3, 1, 2).copy())).last_hidden_state
  np.testing.assert_allclose(features["pre_logits"], theirs[:, 0], atol=1e-5, rtol=0)
  np.testing.assert_allclose(features["patches"], theirs[:, 1:], atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", ["ViTMAEForPreTraining", "ViTMAEModel"])
def test_the_encoder_of_masked_autoencoding_is_read(tmp_path, caplog, kind):
  transformers = pytest.importorskip("transformers", reason="transformers is not installed")
  torch = pytest.importorskip("torch", reason="torch is not installed")
  sizes = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
  small = {f"decoder_{key}": value for key, value in sizes.items()}
  config = transformers.ViTMAEConfig(image_size=16, patch_size=4, mask_ratio=0.0, **sizes, **small)
  model = getattr(transformers, kind)(config).eval()
  model.save_pretrained(tmp_path)
  loaded, images = load(tmp_path), families.images()
  assert ("images do not need them: 'decoder." in caplog.text) == (kind == "ViTMAEForPreTraining")
  _, features = loaded.module.apply({"params": loaded.params}, images, train=False)
  pixels = torch.from_numpy(images.transpose(0, 3, 1, 2).copy())
  order = torch.arange(16.0).repeat(len(images), 1)  # of the patches, which it shuffles
  with torch.no_grad():
    encoder = getattr(model, "vit", model)
    theirs = encoder(pixels, noise=order).last_hidden_state
  np.testing.assert_allclose(features["pre_logits"], theirs[:, 0], atol=1e-5, rtol=0)
  np.testing.assert_allclose(features["patches"], theirs[:, 1:], atol=1e-5, rtol=0)


def test_a_pipeline_prepares_images_and_names_classes_as_we_do(folder, monkeypatch):
  """From the image to names and probabilities, without a network."""
  monkeypatch.setenv("HF_HUB_OFFLINE", "1")
  transformers = pytest.importorskip("transformers", reason="transformers is not installed")
  pytest.importorskip("torch", reason="torch is not installed")
  classify = transformers.pipeline("image-classification", model=str(folder))
  pixels = np.random.default_rng(0).integers(0, 256, (16, 16, 3), np.uint8)
  theirs = {c["label"]: c["score"] for c in classify(Image.fromarray(pixels), top_k=5)}
  Image.fromarray(pixels).save(folder.parent / "image.png")
  (ours,) = predict(load(folder), [folder.parent / "image.png"], top=5, batch_size=1)
  assert theirs == pytest.approx(dict(ours.classes), abs=1e-5)
