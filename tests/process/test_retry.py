"""When a write that failed is tried again."""

from vit_jax.storage.base import MAX_PAUSE, Retry


def times(seconds):
  """When it is tried, in seconds after the first failure, if each try fails."""
  now = [100.0]
  retry, tries = Retry(seconds, clock=lambda: now[0]), [0.0]
  while retry.failed():
    while not retry.due():
      now[0] += 0.5
    tries.append(now[0] - 100.0)
  return tries


def test_pauses_grow_and_the_last_try_is_at_the_end_of_the_time():
  assert times(10) == [0, 1, 3, 7, 10]
  assert times(0) == [0]
  pauses = [after - before for before, after in zip(times(600), times(600)[1:], strict=False)]
  assert max(pauses) == MAX_PAUSE
  assert sum(pauses) == 600


def test_after_a_success_the_time_begins_anew():
  now = [0.0]
  retry = Retry(10.0, clock=lambda: now[0])
  assert retry.failed()
  assert retry.failing
  assert not retry.due()
  retry.succeeded()
  assert not retry.failing
  now[0] = 1000.0
  assert not retry.due()
  assert retry.failed()


def test_waiting_says_every_second_that_it_is_alive(monkeypatch):
  now, signs = [0.0], []
  monkeypatch.setattr("time.sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
  retry = Retry(60.0, clock=lambda: now[0])
  for _ in range(3):
    retry.failed()
  retry.wait(lambda: signs.append(now[0]))
  assert signs == [0.0, 1.0, 2.0, 3.0]
