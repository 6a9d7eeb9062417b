"""vit-jax cache: what it says, and what it writes."""

from vit_jax.extras.commands import cache


def test_a_cache_is_made_once(tmp_path, capsys):
  for count in (1437, 0):
    cache.main(["--config=configs/vit_digits.py", f"--config.data.cache={tmp_path}"])
    said = capsys.readouterr().out
    assert said.startswith(f"{count:,} of 1,437 images are still to be cached: about 0 MB; ")
  names = sorted(path.name for path in tmp_path.iterdir())
  assert names == ["cache.json", *(f"images-00000{i}-of-000002.array_record" for i in (0, 1))]
