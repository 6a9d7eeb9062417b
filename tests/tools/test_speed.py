"""The command that the page of a survey of speed names."""

from tools import speed


def test_the_command_on_the_page_is_for_all_that_was_tried():
  trials = [
    dict(model="ViT-B/32", image_size="224"),
    dict(model="R50x1", image_size="128"),
    dict(model="ViT-B/32", image_size="128"),
  ]
  words = speed.flags().parse_args(["--model", "R50x1", "--topology=v3:2x2"])
  found = speed.flags().parse_args(speed.asked(words, trials))
  assert found.model == ["ViT-B/32", "R50x1"]
  assert found.image_size == [128, 224]
  assert (found.topology, found.workdir) == ("v3:2x2", None)
  here = speed.flags().parse_args(["--memory=2", "--workdir=w"])
  assert speed.asked(here, trials)[0] == "--memory=2"
  assert speed.asked(here, trials)[-1] == "--workdir=w"
