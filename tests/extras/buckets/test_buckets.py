"""Buckets, by real servers of both protocols on loopback, through a proxy that injects faults."""

import contextlib
import errno
import itertools
import json
import os
import pathlib
import shutil
import tempfile
import threading
import time

import jax
import obstore
import pytest

from tests import buckets
from tests.storage import states
from tests.weights import families
from vit_jax import weights
from vit_jax.extras.buckets import client, growing, lease
from vit_jax.extras.buckets.reading import Stream
from vit_jax.process.errors import ConfigError
from vit_jax.storage import checkpoint, files, manifest, metrics_log
from vit_jax.storage.base import UnreachableError
from vit_jax.storage.paths import path_of

NUMBERS = itertools.count()


# For what follows from the operations on files alone, which have tests for both protocols.
ONE = pytest.mark.parametrize("scheme", ["gs"], indirect=True, scope="module")


@pytest.fixture(scope="module", params=["gs", "s3"])
def scheme(request):
  return request.param


@pytest.fixture(scope="module")
def proxy(scheme):
  """The proxy before the server."""
  with buckets.served(scheme) as made:
    yield made


@pytest.fixture
def folder(scheme, proxy):
  """An empty folder in the bucket."""
  made = path_of(f"{scheme}://{buckets.BUCKET}/runs {next(NUMBERS)}/größe#1")
  files.make_folder(made)
  return made


@pytest.fixture
def run(folder):
  """The folder of a run, which is there because it is locked."""
  files.write_text(folder / "lock", "")
  return folder


@pytest.fixture(autouse=True)
def quick(monkeypatch):
  monkeypatch.setattr(client, "PAUSES", (0.01, 0.02, 0.05, 0.1, 0.1, 0.1, 0.1))
  monkeypatch.setattr(manifest, "SETTLED", 0.01)


def below(folder):
  return sorted(files.files_below(folder))


def names(folder):
  return [path.name for path in files.matching(folder)]


def assert_same(found, state):
  pairs = zip(jax.tree.leaves(found), jax.tree.leaves(state), strict=True)
  assert all(bool((a == b).all()) for a, b in pairs)


@contextlib.contextmanager
def failing_copies(after, error):
  """All copies of objects but the first ones fail."""
  copy, count = obstore.copy, itertools.count()

  def failing(*words):
    if next(count) >= after:
      raise error
    copy(*words)

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(obstore, "copy", failing)
    yield


def test_files_are_as_on_a_disk(folder):
  assert not names(folder)
  files.write_text(folder / "a.txt", "one")
  files.write_text(folder / "a.txt", "two")
  assert files.read_bytes(folder / "a.txt", most=3) == b"two"
  with pytest.raises(OSError, match="larger than 2 bytes"):
    files.read_bytes(folder / "a.txt", most=2)
  assert files.create(folder / "new", "first")
  assert not files.create(folder / "new", "second")
  assert files.read_bytes(folder / "new", most=9) == b"first"
  files.write_text(folder / "b" / "c" / "d", "")
  assert below(folder) == ["a.txt", "b/c/d", "new"]
  assert names(folder) == ["a.txt", "b", "new"]
  kinds = files.is_file, files.is_folder, files.exists
  assert [[kind(folder / name) for kind in kinds] for name in ("b", "b/c/d", "no")] == [
    [False, True, True],
    [True, False, True],
    [False, False, False],
  ]
  with pytest.raises(FileNotFoundError):
    files.open_file(folder / "no")
  files.remove(folder / "no")
  files.remove(folder / "b")
  assert names(folder) == ["a.txt", "new"]
  assert not names(folder / "no")


def test_what_begins_with_the_same_letters_is_apart(folder):
  for name in ("1/x", "10/x", "1.parts-of-it", "1 b/x", "100"):
    files.write_text(folder / name, name)
  assert names(folder) == ["1", "1 b", "1.parts-of-it", "10", "100"]
  files.remove(folder / "1")
  assert names(folder) == ["1 b", "1.parts-of-it", "10", "100"]
  assert not files.exists(folder / "1")


def test_large_files_are_read_in_any_place(folder, tmp_path, monkeypatch):
  monkeypatch.setattr("vit_jax.extras.buckets.reading.BLOCK", 1000)
  content = bytes(range(256)) * 40
  files.write_bytes(folder / "large", content)
  with files.open_file(folder / "large") as file:
    for place in (0, 9_990, 1, 5_000, 10_239):
      file.seek(place)
      assert file.read(700) == content[place:][: min(700, 1000)]
    file.seek(100)
    assert file.read() == content[100:]
    assert file.read() == b""
  files.copy(folder / "large", tmp_path / "here")
  assert (tmp_path / "here").read_bytes() == content


def test_a_file_grows_by_parts_that_readers_join(folder):
  path = folder / "metrics.jsonl"
  files.write_text(path, "0\n")
  grown = files.append(path)
  for number in range(1, 4):
    grown.add(b"%d\n" % number)
    assert files.open_file(path).read() == b"".join(b"%d\n" % n for n in range(number + 1))
  assert names(folder) == below(folder) == ["metrics.jsonl"]
  again = files.append(path)  # of a process that goes on after the first was killed
  again.add(b"4\n")
  with pytest.raises(FileExistsError):
    grown.add(b"5\n")
  grown.close()
  assert files.open_file(path).read() == b"0\n1\n2\n3\n4\n"
  files.write_text(path, "9\n")  # whole; the parts of before do not come back
  with pytest.raises(FileNotFoundError):
    again.add(b"6\n")
  again.close()
  with contextlib.closing(files.append(path)) as grown:
    grown.add(b"10\n")
  assert files.open_file(path).read() == b"9\n10\n"
  assert below(folder) == ["metrics.jsonl"]


def test_a_part_whose_answers_were_all_lost_is_added_once(folder, proxy, monkeypatch):
  monkeypatch.setattr(client, "PAUSES", ())
  grown = files.append(folder / "log")
  with proxy.faulty(1.0, "after"), pytest.raises(OSError, match="does not answer"):
    grown._write(b"a")
  grown.add(b"a")
  grown.add(b"b")
  grown.close()
  assert files.read_bytes(folder / "log", most=9) == b"ab"


def test_a_lock_whose_renewal_was_not_answered_is_held(folder, proxy, monkeypatch):
  monkeypatch.setattr(client, "PAUSES", ())
  with files.locked(folder / "lock") as held:
    with proxy.faulty(1.0, "after"), pytest.raises(OSError, match="does not answer"):
      held._renew()
    held._renewed = 0.0
    assert held.held()
  assert not files.exists(folder / "lock")


def test_a_part_is_added_without_reading_or_writing_those_before(folder, proxy):
  grown = files.append(folder / "log")
  for count in (1, 50):
    for _ in range(count):
      grown.add(b"x" * 1000)
    before = proxy.count
    grown.add(b"y")
    assert proxy.count - before == 2


def test_a_renamed_folder_is_seen_when_it_is_whole(folder, monkeypatch):
  for number in range(30):
    files.write_text(folder / "tmp" / f"{number}", "content")
  storage, seen, copying = files.storage_of(folder), [], []
  copy = storage.copy

  def watched(*words):
    copying.append(words)
    if len(copying) == 15:
      seen.extend(names(folder))
      seen.append(files.exists(folder / "new"))
      seen.extend(name for name in below(folder) if name.startswith("new"))
      with pytest.raises(FileExistsError):  # exclusive, also while it is under way
        files.rename(folder / "tmp", folder / "new")
    copy(*words)

  monkeypatch.setattr(storage, "copy", watched)
  files.rename(folder / "tmp", folder / "new")
  assert seen == ["tmp", False]
  assert names(folder) == ["new"]
  assert len(below(folder / "new")) == 30
  files.write_text(folder / "tmp" / "0", "other")
  with pytest.raises(OSError, match="not empty") as error:
    files.rename(folder / "tmp", folder / "new")
  assert error.value.errno in (errno.EEXIST, errno.ENOTEMPTY)
  assert names(folder) == ["new", "tmp"]
  assert files.read_bytes(folder / "new" / "0", most=9) == b"content"


def test_a_rename_that_fails_leaves_nothing(folder):
  for number in range(10):
    files.write_text(folder / "tmp" / f"{number}", "content")
  said = "Error performing PUT URL in 1ms - Server returned non-2xx status code: 418 no"
  with (
    failing_copies(5, obstore.exceptions.GenericError(said)),
    pytest.raises(OSError, match="418 no"),
  ):
    files.rename(folder / "tmp", folder / "new")
  assert names(folder) == ["tmp"]
  files.rename(folder / "tmp", folder / "new")
  assert names(folder) == ["new"]
  assert len(below(folder / "new")) == 10


@ONE
def test_a_rename_whose_target_is_there_has_not_failed(folder, monkeypatch):
  files.write_text(folder / "old" / "a", "a")
  monkeypatch.setattr(growing.Parts, "remove", lambda _: os.write(-1, b""))  # an OSError
  files.rename(folder / "old", folder / "new")
  assert names(folder) == ["new"]


def test_a_lock_has_one_holder(folder):
  lock = folder / "lock"
  with files.locked(lock) as held:
    assert held.held()
    began = time.monotonic()
    with pytest.raises(BlockingIOError), files.locked(lock):
      pass
    assert time.monotonic() - began < lease.RENEW + 2
    files.write_text(lock, "{}")  # replaced by somebody
    held._renewed = 0.0
    assert not held.held()
  assert files.read_bytes(lock, most=9) == b"{}"  # not removed by who has lost it
  files.remove(lock)
  with files.locked(lock):
    pass
  assert not files.exists(lock)


def test_the_lock_of_a_dead_holder_is_taken_over(folder, monkeypatch):
  lock, said = folder / "lock", lease._this_process()
  files.write_text(lock, json.dumps({**said, "started": "before"}))  # a process that is gone
  began = time.monotonic()
  with files.locked(lock):
    assert time.monotonic() - began < 2
  monkeypatch.setattr(lease, "SECONDS", 3)
  for content in (json.dumps({**said, "machine": "another"}), "not JSON", "[]"):
    files.write_text(lock, content)
    began = time.monotonic()
    with files.locked(lock):
      assert 3 <= time.monotonic() - began < 6


def test_a_lock_is_seen_without_taking_it(folder, monkeypatch):
  lock, said = folder / "lock", lease._this_process()
  monkeypatch.setattr(lease, "RENEW", 0.1)
  monkeypatch.setattr(lease, "LOOK", 0.5)
  assert not files.is_locked(lock)
  with files.locked(lock):
    assert files.is_locked(lock)
  for dead in ({"machine": "another"}, {"started": "before"}):
    files.write_text(lock, json.dumps(said | dead))
    assert not files.is_locked(lock)
    assert files.exists(lock)


def test_of_many_who_want_a_dead_holders_lock_one_gets_it(folder):
  lock, got, refused = folder / "lock", [], []
  files.write_text(lock, json.dumps({**lease._this_process(), "started": "before"}))
  together, done = threading.Barrier(6), threading.Event()

  def want():
    together.wait()
    try:
      with files.locked(lock):
        got.append(1)
        done.wait()
    except BlockingIOError:
      refused.append(1)

  threads = [threading.Thread(target=want) for _ in range(6)]
  for thread in threads:
    thread.start()
  deadline = time.monotonic() + 60
  while len(refused) < 5 and time.monotonic() < deadline:
    time.sleep(0.01)
  done.set()
  for thread in threads:
    thread.join()
  assert (len(got), len(refused)) == (1, 5)


def test_a_lock_that_is_written_between_two_requests_is_read_again(folder, monkeypatch):
  lock = folder / "lock"
  bucket, seen = files.storage_of(lock), []
  for number in range(2):
    files.write_text(lock, json.dumps({"written": number}))
    seen.append(bucket.stat(lock))
  told = iter(seen)
  monkeypatch.setattr(bucket, "stat", lambda path: next(told))
  assert lease.Lease(bucket, lock)._there() == ({"written": 1}, seen[1])


@pytest.mark.parametrize("fault", buckets.FAULTS)
def test_a_request_that_fails_is_made_again(folder, proxy, fault):
  with proxy.faulty(0.3, fault):
    files.write_text(folder / "a", "content")
    assert files.create(folder / "new", "first")
    grown = files.append(folder / "log")
    for number in range(5):
      grown.add(b"%d" % number)
    grown.close()
    files.write_text(folder / "tmp" / "b", "b")
    files.rename(folder / "tmp", folder / "whole")
    with files.locked(folder / "lock") as held:
      held._renew()
      assert held.held()
    assert files.read_bytes(folder / "a", most=9) == b"content"
    assert files.read_bytes(folder / "log", most=9) == b"01234"
    assert names(folder) == ["a", "log", "new", "whole"]


@pytest.mark.parametrize(
  ("status", "code", "words"),
  [
    (503, "", "does not answer as it should"),
    (403, "RequestTimeout", "does not answer as it should"),
    (403, "InsufficientQuota", "a quota is used up"),
    (403, "", "permission denied"),
    (403, "AccessDenied", "permission denied"),
    (403, "RequestTimeTooSkewed", "clock of this machine"),
  ],
)
def test_what_goes_on_failing_is_one_sentence(folder, proxy, monkeypatch, status, code, words):
  """The answer to HEAD has no code, so the object is asked for in another way."""
  monkeypatch.setattr(client, "PAUSES", ())
  path = folder / "a"
  files.write_text(path, "content")
  stamp = files.stamp(path)
  for request in (
    lambda: files.part(path, stamp, 0, 3),
    lambda: files.write_text(path, "new"),
    lambda: files.stamp(path),
  ):
    with proxy.refusing(status, code), pytest.raises(OSError, match=words) as error:
      request()
    assert "\n" not in str(error.value)
    assert str(path) in str(error.value)
    may_pass = "answer" in words or "quota" in words
    assert isinstance(error.value, ConfigError) == (not may_pass)


@pytest.mark.parametrize("scheme", ["s3"], indirect=True, scope="module")
def test_more_objects_than_a_page_has_are_listed(folder, proxy, monkeypatch):
  for number in range(7):
    files.write_text(folder / f"{number}", "x")
    files.write_text(folder / f"folder {number}" / "x", "x")
  monkeypatch.setattr(proxy, "page", 3)
  before = proxy.count
  assert len(below(folder)) == 14
  assert proxy.count - before >= 5
  assert len(names(folder)) == 14
  with proxy.faulty(0.2):  # a page that fails is asked for again, and those before it are not
    assert len(below(folder)) == 14


@pytest.mark.parametrize("name", ["a//b", "a/./b", "a/../b", "a/../../../tmp/x", "../a", "./a"])
def test_a_key_that_is_no_path_is_refused_and_nothing_is_copied(folder, proxy, tmp_path, name):
  files.write_text(folder / "a" / "first", "x")
  proxy.write(f"{client.place(folder)[1]}/{name}", b"x")
  with pytest.raises(ConfigError, match="which is no path: a part of it is empty"):
    names(folder / "a" if name.startswith("a/") else folder)
  for reading in (below, lambda path: files.copy(path, tmp_path / "here")):
    with pytest.raises(ConfigError, match="which is no path: a part of it is empty"):
      reading(folder)
  assert not list(tmp_path.iterdir())


def test_no_more_is_copied_than_the_disk_has_room_for(folder, tmp_path, monkeypatch):
  for name in "ab":
    files.write_text(folder / name, "12345")
  with pytest.raises(OSError, match="have 10 bytes, and at most 9 are read"):
    files.copy_files(folder, tmp_path / "here", ["a", "b"], most=9)
  monkeypatch.setattr(files.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(99, 90, 9))
  for path in (folder, tmp_path / "large"):
    (tmp_path / "large").write_bytes(b"1234567890")
    with pytest.raises(OSError, match="needs 10 bytes, and the disk has 9 free"):
      files.copy(path, tmp_path / "here")
  files.copy(tmp_path / "large", folder / "c")  # which has no limit that is known
  assert [path.name for path in tmp_path.iterdir()] == ["large"]


@ONE
def test_of_a_folder_of_weights_what_is_read_is_copied_and_nothing_else(folder):
  params, copied, copy_file = families.params("vit"), [], files._copy_file
  for name in ("w.npz", "w.npz.json", "config.json", "hf/a/b.safetensors", "hf/pytorch_model.bin"):
    files.write_text(folder / name, "{}")
  files.remove(folder / "w.npz.json")
  weights.write(folder / "w.npz", weights.Weights(params, None))
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(files, "_copy_file", lambda *pair: (copied.append(pair), copy_file(*pair)))
    read = weights.read(folder / "w.npz").params
    assert (read["head"]["bias"] == params["head"]["bias"]).all()
    with pytest.raises(ConfigError, match="is pickled"):
      weights.read(folder / "hf")
  assert sorted(path.name for path, _ in copied) == ["config.json", "w.npz", "w.npz.json"]
  assert files.read_bytes(folder / "config.json", most=9) == b"{}"


def test_a_bucket_that_is_not_there_is_one_sentence(scheme, proxy):
  with pytest.raises(ConfigError, match=f"there is no bucket {scheme}://no-bucket: make it"):
    files.exists(path_of(f"{scheme}://no-bucket/run"))
  with pytest.raises(OSError, match="there is no bucket"):
    files.write_text(path_of(f"{scheme}://no-bucket/run"), "x")


def test_checkpoints_are_saved_kept_and_restored(run, proxy, caplog):
  with proxy.faulty(0.1):
    with contextlib.closing(states.opened(run, keep_last=2)) as checkpoints:
      for step in (3, 5, 7):
        states.until_it_is_saved(checkpoints, step)
    assert checkpoint.available(run) == [5, 7]
    assert "was removed" not in caplog.text  # a bucket has no empty folder before the first save
    restored = states.restore(run)
  assert int(restored.step) == 7
  assert_same(restored, states.at_step(7))
  assert {name.split("/")[0] for name in below(run / "checkpoints")} == {"5", "7"}


def test_a_save_that_a_killed_run_was_renaming_is_none_and_is_saved_again(run):
  states.saved(run, 3)
  files.copy(run / "checkpoints" / "3", run / "checkpoints" / "tmp")
  with failing_copies(4, KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
    files.rename(run / "checkpoints" / "tmp", run / "checkpoints" / "5")
  assert checkpoint.available(run) == files.numbers_in(run / "checkpoints") == [3]
  states.saved(run, 5)
  assert checkpoint.available(run) == [3, 5]
  assert int(states.restore(run).step) == 5


@ONE
def test_metrics_go_on_where_a_killed_run_left_them(folder):
  writer = metrics_log.Writer(folder, start_step=0)
  for step in range(1, 6):
    writer.write(step, {"loss": 1.0})
  del writer  # never closed: killed
  with contextlib.closing(metrics_log.Writer(folder, start_step=3)) as writer:
    writer.write(4, {"loss": 2.0})
  assert [(line["step"], line["loss"]) for line in metrics_log.read_lines(folder)] == [
    *((step, 1.0) for step in range(1, 4)),
    (4, 2.0),
  ]
  assert all(isinstance(path, type(folder)) for path in files.matching(folder))
  assert not list(pathlib.Path.cwd().glob("gs:*"))


@ONE
def test_a_bucket_that_does_not_answer_is_not_taken_for_damage(run, proxy):
  states.saved(run, 3)
  with contextlib.closing(states.opened(run)) as checkpoints, proxy.refusing(503):
    checkpoints.save(states.at_step(5), states.META)
    checkpoints.wait()
    assert "does not answer" in checkpoints.outcome()
    with pytest.raises(UnreachableError):
      checkpoint.damage_of(run / "checkpoints" / "3")
    with pytest.raises(UnreachableError):
      metrics_log.read_lines(run)
  assert names(run / "checkpoints") == ["3"]
  assert int(states.restore(run).step) == 3


def test_objects_that_stand_for_folders_are_no_files_and_go_with_the_folder(folder, proxy):
  key = client.place(folder)[1]
  for name in ("", "a/", "a/b/", "empty/"):  # as consoles and earlier versions make them
    proxy.write(f"{key}/{name}", b"")
  files.write_text(folder / "a" / "b" / "c", "")
  assert below(folder) == ["a/b/c"]
  assert names(folder) == ["a", "empty"]
  assert files.is_folder(folder / "a")
  files.rename(folder / "a", folder / "new")
  files.remove(folder / "empty")
  assert names(folder) == ["new"]
  assert not files.exists(folder / "a")
  files.remove(folder)
  assert not files.exists(folder)


def test_a_key_that_begins_with_a_slash_is_refused(scheme, proxy):
  root = path_of(f"{scheme}://{buckets.BUCKET}")
  proxy.write("/x.jpg", b"x")
  try:
    for reading in (names, below):
      with pytest.raises(ConfigError, match="which is no path"):
        reading(root)
  finally:
    proxy.delete("/x.jpg")


@ONE
def test_an_old_checkpoint_is_deleted_without_a_copy(run, monkeypatch):
  states.saved(run, 3)
  copy, copied = obstore.copy, []
  monkeypatch.setattr(obstore, "copy", lambda *words: (copied.append(words[-1]), copy(*words)))
  states.saved(run, 5, keep_last=1)
  assert {name.split("/")[0] for name in below(run / "checkpoints")} == {"5"}
  assert {key.partition("/checkpoints/")[2].split("/")[0] for key in copied} == {"5"}


@ONE
def test_files_are_written_if_the_disk_of_this_machine_is_full(folder, monkeypatch):
  monkeypatch.setattr(tempfile, "gettempdir", lambda: "/no such folder")
  files.write_text(folder / "heartbeat", "alive")
  assert files.read_bytes(folder / "heartbeat", most=9) == b"alive"


def test_a_listing_tells_which_files_have_changed(folder):
  for name, text in (("0", "a"), ("1", "b"), ("below/2", "c")):
    files.write_text(folder / name, text)
  before = files.listed_stamps(folder)
  assert before.keys() == {"0", "1"}
  files.write_text(folder / "1", "d")
  after = files.listed_stamps(folder)
  assert after["0"] == before["0"]
  assert after["1"] != before["1"]


@pytest.mark.parametrize(("place", "asked"), [(0, [(0, 334)]), (998, [(332, 667), (666, 1000)])])
def test_small_parts_are_read_at_once(monkeypatch, place, asked):
  monkeypatch.setattr("vit_jax.extras.buckets.reading.BLOCK", 1001)
  parts = [client.Found(str(number), size, "") for number, size in enumerate([3] * 999 + [0])]
  known = []

  def at_once(ask, pieces):
    known.append((int(pieces[0].at.key), int(pieces[-1].at.key) + 1))
    return list(map(ask, pieces))

  read = lambda piece: (b"%03d" % int(piece.at.key))[piece.start : piece.stop]
  stream = Stream(read, parts, at_once)
  stream.seek(place)
  whole = b"".join(b"%03d" % number for number in range(999))
  assert stream.read(500) == whole[place:][:500]
  assert known == asked[:1]
  assert stream.readall() == whole[place:][500:]


@ONE
def test_what_a_killed_run_left_hidden_gets_into_no_checkpoint(run):
  place = run / "checkpoints" / "3.orbax-checkpoint-tmp-1"
  aside = run / "checkpoints" / "5.damaged"
  for hidden in (place, aside):
    files.write_text(hidden / "state" / "d" / "stale", "of before")
    files.write_text(hidden.with_name(f"{hidden.name}.hidden"), "")  # killed in its removal
  states.saved(run, 3, 5)
  assert not checkpoint.damage_of(run / "checkpoints" / "3")
  files.remove(run / "checkpoints" / "5" / "meta")
  assert int(states.restore(run).step) == 3
  assert files.is_folder(aside)
