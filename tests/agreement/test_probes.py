"""The probes of encoders beside PyTorch: the same features, initial values and batches.

Needs torch and transformers (the extra `agreement`); skipped, with this reason, without them.
"""

import jax
import numpy as np
import pytest

from tests.extras.probes import made
from vit_jax.extras.probes import attentive, linear, scores
from vit_jax.extras.probes.batches import chunks, cosine

torch = pytest.importorskip("torch", reason="torch is not installed (extra `agreement`)")
vjepa = pytest.importorskip(
  "transformers.models.vjepa2", reason="transformers is not installed (extra `agreement`)"
)

CLASSES = 4
WIDTH = 12
TRAIN, LABELS = made.features(150, CLASSES, width=WIDTH)
TEST, TEST_LABELS = made.features(200, CLASSES, width=WIDTH, seed=1)


def tensor(array):
  return torch.from_numpy(np.array(array))


def inputs_of(features, kind):
  """What a classifier sees, by the protocol's words."""
  blocks = torch.unbind(tensor(features["image"]), dim=1)[-kind.blocks :]
  return torch.cat([*blocks, *[tensor(features["mean"])] * kind.mean], dim=-1)


RATES = [1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1]


@pytest.mark.parametrize("number", [0, 3])
def test_every_classifier_of_the_linear_probe(number):
  """All 13 rates, of the least and the most inputs, after 12 steps: logits and accuracies."""
  steps = 12
  kind = linear.kinds(TRAIN, class_token=True)[number]
  ours = linear.trained(
    (TRAIN["image"], TRAIN["mean"], LABELS), (kind,), CLASSES, 5, steps, lambda images: None
  )
  initial, _ = linear.initial(kind, TRAIN["image"], CLASSES, 5)
  kernels = [torch.nn.Parameter(tensor(initial[0])) for _ in RATES]
  biases = [torch.nn.Parameter(torch.zeros(CLASSES)) for _ in RATES]
  optimizer = torch.optim.SGD(
    [
      dict(params=pair, lr=rate * 128 / 256)
      for *pair, rate in zip(kernels, biases, RATES, strict=True)
    ],
    momentum=0.9,
    weight_decay=0,
  )
  schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps, eta_min=0)

  def logits_of(x):
    return torch.stack([x @ kernel + bias for kernel, bias in zip(kernels, biases, strict=True)])

  (rows,) = chunks(len(LABELS), linear.BATCH, steps, 5)
  x = inputs_of(TRAIN, kind)
  for row in rows:
    optimizer.zero_grad()
    labels = tensor(LABELS[row]).repeat(len(RATES))
    loss = torch.nn.functional.cross_entropy(logits_of(x[row]).flatten(0, 1), labels)
    (loss * len(RATES)).backward()
    optimizer.step()
    schedule.step()
  with torch.no_grad():
    theirs = logits_of(inputs_of(TEST, kind)).numpy()
  for i, logits in enumerate(theirs):
    mine = linear.logits_of(kind, *(array[i] for array in ours[kind]), TEST)
    np.testing.assert_allclose(mine, logits, atol=1e-4)
    assert scores.accuracy(mine, TEST_LABELS) == scores.accuracy(logits, TEST_LABELS)


class Theirs(torch.nn.Module):
  """V-JEPA 2's pooler, of Transformers, and a linear layer, with our parameters."""

  def __init__(self, params):
    super().__init__()
    *inner, last = params["blocks"]
    config = vjepa.configuration_vjepa2.VJEPA2Config(
      hidden_size=WIDTH,
      num_attention_heads=attentive.heads(WIDTH),
      num_pooler_layers=len(inner),
      layer_norm_eps=1e-5,
    )
    config._attn_implementation = "eager"
    self.pooler = vjepa.modeling_vjepa2.VJEPA2AttentivePooler(config)
    self.head = torch.nn.Linear(WIDTH, CLASSES)
    self.pooler.query_tokens.data = tensor(params["query"])[None, None]
    put(self.head, params["head"])
    cross = self.pooler.cross_attention_layer
    for layer, attention, block in (
      *((x, x.self_attn, b) for x, b in zip(self.pooler.self_attention_layers, inner, strict=True)),
      (cross, cross.cross_attn, last),
    ):
      for ours, theirs in (("query", "q"), ("key", "k"), ("value", "v"), ("out", "out")):
        if ours in block:
          put(getattr(attention, f"{theirs}_proj"), block[ours])
      put(layer.mlp.fc1, block["up"])
      put(layer.mlp.fc2, block["down"])
      for norm, name in ((layer.layer_norm1, "before"), (layer.layer_norm2, "between")):
        norm.weight.data = tensor(block[name]["scale"])
        norm.bias.data = tensor(block[name]["bias"])

  def forward(self, patches):
    return self.head(self.pooler(patches))


def put(layer, ours):
  layer.weight.data = tensor(ours["kernel"].T)
  layer.bias.data = tensor(ours["bias"])


@pytest.mark.parametrize("probe", ["attentive", "cross_attention"])
def test_attentive_probes_train_as_the_library_s_pooler(probe, monkeypatch):
  """The losses of 6 steps of AdamW for two pairs of rate and weight decay; then the logits."""
  settings = ((0.01, 1e-3), (0.4, 1e-4))
  monkeypatch.setattr(attentive, "SETTINGS", settings)
  steps = 6
  depth = attentive.DEPTHS[probe]
  params = attentive.initial(WIDTH, CLASSES, depth, 0)
  stacked = jax.tree.map(lambda x: np.broadcast_to(x, (2, *x.shape)), params)
  state = jax.device_put(stacked), jax.jit(attentive.optimizer().init)(stacked)
  models = [Theirs(params) for _ in settings]
  rates = [
    torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=decay)
    for model, (decay, rate) in zip(models, settings, strict=True)
  ]
  falling = [torch.optim.lr_scheduler.CosineAnnealingLR(each, steps) for each in rates]
  (rows,) = chunks(len(LABELS), attentive.BATCH, steps, 0)
  losses = jax.jit(jax.vmap(attentive.loss, in_axes=(0, None, None)))
  for row, factor in zip(rows, cosine(0, steps, steps), strict=True):
    batch = TRAIN["patches"][row], LABELS[row]
    mine = losses(state[0], *batch)
    for i, (model, optimizer, schedule) in enumerate(zip(models, rates, falling, strict=True)):
      optimizer.zero_grad()
      loss = torch.nn.functional.cross_entropy(model(tensor(batch[0])), tensor(batch[1]))
      loss.backward()
      optimizer.step()
      schedule.step()
      np.testing.assert_allclose(mine[i], loss.item(), atol=1e-4)
    state = attentive.step(state, *batch, factor)
  for i, model in enumerate(models):
    own = jax.tree.map(lambda x, i=i: np.asarray(x[i]), state[0])
    with torch.no_grad():
      theirs = model(tensor(TEST["patches"])).numpy()
    mine = attentive.logits_of(own, TEST)
    np.testing.assert_allclose(mine, theirs, atol=1e-4)
    assert scores.accuracy(mine, TEST_LABELS) == scores.accuracy(theirs, TEST_LABELS)


def test_initial_values_of_the_attentive_probe():
  """Those of V-JEPA 2's code: 0.02, divided by sqrt(2 i) where a branch ends."""
  params = attentive.initial(192, CLASSES, 4, 0)
  deviations = [
    {name: float(np.std(block[name]["kernel"])) for name in ("query", "up", "down")}
    for block in params["blocks"]
  ]
  expected = [{"query": 0.02, "up": 0.02, "down": 0.02 / np.sqrt(2 * i)} for i in (1, 2, 3, 3)]
  for ours, theirs in zip(deviations, expected, strict=True):
    assert ours == pytest.approx(theirs, rel=0.02)
  assert ["out" in block for block in params["blocks"]] == [True, True, True, False]
  assert abs(params["head"]["kernel"]).max() <= 192**-0.5
