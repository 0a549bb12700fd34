"""The cache: whole entries only, several processes, kills, eviction."""

import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest

from dice.toolchain.cache import Cache, cache_root, digest, file_lock


def put(cache: Cache, key: str, content: bytes) -> Path:
    with cache.workspace() as workspace:
        built = workspace / "built"
        built.mkdir()
        (built / "data").write_bytes(content)
        return cache.publish(built, "things", key)


def test_find_returns_what_was_published(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    assert cache.find("things", digest("a")) is None
    put(cache, digest("a"), b"content")
    found = cache.find("things", digest("a"))
    assert found is not None
    assert (found / "data").read_bytes() == b"content"
    assert list((tmp_path / "tmp").iterdir()) == []


def test_the_first_of_two_publishers_stands(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    first, second = put(cache, digest("a"), b"first"), put(cache, digest("a"), b"second")
    assert first == second
    assert (second / "data").read_bytes() == b"first"


def publish_many(root: Path, keys: list[str]) -> None:
    cache = Cache(root)
    for key in keys:
        put(cache, key, key.encode() * 100)


def test_two_processes_publish_the_same_keys(tmp_path: Path) -> None:
    keys = [digest(str(number)) for number in range(200)]
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=publish_many, args=(tmp_path, keys)) for _ in range(2)]
    for one in workers:
        one.start()
    for one in workers:
        one.join()
    assert [one.exitcode for one in workers] == [0, 0]
    for key in keys:
        assert (tmp_path / "things" / key / "data").read_bytes() == key.encode() * 100


def publish_slowly(root: Path) -> None:
    cache = Cache(root)
    with cache.workspace() as workspace:
        built = workspace / "built"
        built.mkdir()
        (built / "data").write_bytes(b"half")
        (root / "started").touch()
        time.sleep(60)
        cache.publish(built, "things", digest("a"))


def test_a_killed_builder_leaves_no_entry_and_no_lock(tmp_path: Path) -> None:
    process = multiprocessing.get_context("spawn").Process(target=publish_slowly, args=(tmp_path,))
    process.start()
    while not (tmp_path / "started").exists():
        time.sleep(0.02)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    cache = Cache(tmp_path)
    assert cache.find("things", digest("a")) is None
    [left] = (tmp_path / "tmp").iterdir()
    os.utime(left, (0, 0))
    cache.evict("things")
    assert list((tmp_path / "tmp").iterdir()) == []


def hold_lock(path: Path) -> None:
    with file_lock(path):
        path.with_suffix(".held").touch()
        time.sleep(60)


def test_a_killed_holder_releases_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "one.lock"
    process = multiprocessing.get_context("spawn").Process(target=hold_lock, args=(path,))
    process.start()
    while not path.with_suffix(".held").exists():
        time.sleep(0.02)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    with file_lock(path):
        pass


def test_eviction_removes_the_least_recently_used(tmp_path: Path) -> None:
    cache = Cache(tmp_path, limit_mib=2)
    keys = [
        f"0000000{number}" + "0" * 32 for number in range(1, 5)
    ]  # none asks for an eviction itself
    for age, key in enumerate(keys):
        entry = put(cache, key, b"x" * 700_000)
        os.utime(entry, (1000 + age, 1000 + age))
    cache.find("things", keys[0])
    assert cache.evict("things") == 2
    assert sorted(one.name for one in (tmp_path / "things").iterdir()) == sorted([keys[0], keys[3]])


def test_digest_counts_boundaries() -> None:
    assert digest("ab", "c") != digest("a", "bc")


def test_cache_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DICE_CACHE", str(tmp_path))
    assert cache_root() == tmp_path
    assert cache_root(tmp_path / "other") == tmp_path / "other"
    monkeypatch.delenv("DICE_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_root() == tmp_path / ".cache" / "dice"
