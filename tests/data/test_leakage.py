"""A run that would evaluate on its training images is refused, for every kind of set."""

import pytest

from tests import resolved
from tests.data.opened import tree
from vit_jax import config as c
from vit_jax.evaluation.classification import Classification
from vit_jax.evaluation.evaluations import open_alone
from vit_jax.evaluation.few_shot import FewShot
from vit_jax.evaluation.nearest_neighbours import Nearest
from vit_jax.training import run as runs


@pytest.fixture
def folder(tmp_path):
  return f"folder:{tree(tmp_path, *(f'{label}/{i:02}.png' for label in 'ab' for i in range(20)))}"


def run(train, *, classes=2, data=(), **more):
  data = c.Data(train=train, **dict(data))
  return resolved.config(model=c.Model(num_classes=classes), data=data, batch_size=1, **more)


def scoring(train, test, *, classes=2, **more):
  return run(train, classes=classes, data=more, evaluate={"test": Classification(**vars(test))})


def refused(config):
  with pytest.raises(c.ConfigError) as caught:
    runs.open_data(config)
  said = str(caught.value)
  assert said.count("\n") == 0
  assert said.endswith("or set config.data.allow_overlap=True.")
  return said


def test_the_sentence(folder):
  said = refused(scoring(c.Dataset(folder), c.Dataset(folder, "[90%:]")))
  assert said.startswith(
    f"config.data.train ({folder}) and config.evaluate.test ({folder} [90%:]) have 4 images "
    f"(such as '{folder[7:]}/a/"
  )
  assert "in common; evaluate on images that are not trained on" in said


def test_parts_that_have_none_in_common_are_taken(folder):
  runs.open_data(scoring(c.Dataset(folder, "[:90%]"), c.Dataset(folder, "[90%:]")))
  runs.open_data(scoring(c.Dataset(folder, "[:30]"), c.Dataset(folder, "[30:]")))
  mixed = scoring(c.Dataset(folder, "[:75%]"), c.Dataset(folder, "[20:]"))
  assert "have 10 images" in refused(mixed)
  made_up = c.Dataset("synthetic:10")
  runs.open_data(scoring(made_up, made_up, classes=10))


def test_an_explicit_setting_allows_it_and_it_is_told(folder, caplog):
  sets = c.Dataset(folder), c.Dataset(folder, "[90%:]")
  assert runs.open_data(scoring(*sets, allow_overlap=True)).evaluations
  (said,) = caplog.messages
  assert "have 4 images" in said
  assert "config.data.allow_overlap=True allows it" in said


@pytest.mark.parametrize(
  ("kind", "options"), [(FewShot, dict(shots=(1,), seeds=1)), (Nearest, dict(neighbours=1))]
)
def test_probes_and_neighbours(folder, kind, options):

  def config(train, probe_train, test="[50%:]"):
    sets = (c.Dataset(folder, split) for split in (probe_train, test))
    return run(c.Dataset(folder, train), evaluate={"mine": kind(*sets, **options)})

  runs.open_data(config("[:50%]", "[:50%]"))  # a probe may learn from training images
  key = "config.evaluate.mine"
  said = refused(config("[:50%]", "[:60%]"))
  assert f"{key}.train ({folder} [:60%]) and {key}.test" in said
  said = refused(config("[:60%]", "[:50%]"))
  assert f"config.data.train ({folder} [:60%]) and {key}.test" in said
  with pytest.raises(c.ConfigError, match=f"{key}.train .* and {key}.test"):
    open_alone(config("", "[:60%]"), ())
