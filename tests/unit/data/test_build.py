"""The dataset builder with a verifier that compiles nothing; tests/integration runs the real one."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dice.config.schema import BuildSection
from dice.data import build
from dice.data.records import PairRecord, read_records, write_records
from dice.errors import DataError

CONFIG = BuildSection(pairs=120, shard_size=32, group_size=8, workers=2, held_out_fraction=0.3)


@pytest.fixture
def verified(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Replaces processes by threads and running by a rule: every tenth draw is wrong."""
    groups: list[list[int]] = []

    def verify(config: BuildSection, indices: list[int]) -> list[dict[str, object]]:
        groups.append(list(indices))
        pairs = [build.draw(config.seed, i) for i in indices]
        return [
            {
                "index": i,
                "family": p.family,
                "schedule": p.schedule,
                "ops": p.ops,
                "problem_code": build.canonical_code(p.problem_code),
                "kernel_code": p.kernel_code,
                "rejected": "values: differs" if i % 10 == 0 else None,
            }
            for i, p in zip(indices, pairs, strict=True)
        ]

    def threads(workers: int, **_: object) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(workers)

    monkeypatch.setattr(build, "ProcessPoolExecutor", threads)
    monkeypatch.setattr(build, "_verify_indices", verify)
    monkeypatch.setattr(build, "_prepare_toolchain", lambda: None)
    return groups


def test_a_dataset_has_train_and_held_out_and_says_why_the_rest_is_missing(
    tmp_path: Path, verified: list[list[int]]
) -> None:
    result = build.build_dataset(CONFIG, tmp_path)
    train, held_out = list(read_records(result.train)), list(read_records(result.held_out))
    stats = result.stats
    assert stats["complete"]
    assert len(train) == stats["train"] > 50
    assert len(held_out) == stats["held_out"] > 0
    assert len(train) + len(held_out) + sum(stats["rejected"].values()) == 120
    assert {r.ops for r in train}.isdisjoint({r.ops for r in held_out})
    texts = [r.problem_code for r in train + held_out]
    assert len(set(texts)) == len(texts)
    assert all(r.index % 10 for r in train)
    assert [r.index for r in train] == sorted(r.index for r in train)
    assert sum(stats["families"].values()) == len(train)


def test_the_result_does_not_depend_on_the_number_of_workers(
    tmp_path: Path, verified: list[list[int]]
) -> None:
    one = build.build_dataset(CONFIG.model_copy(update={"workers": 1}), tmp_path / "1")
    many = build.build_dataset(CONFIG.model_copy(update={"workers": 4}), tmp_path / "4")
    assert one.train.read_bytes() == many.train.read_bytes()
    assert one.held_out.read_bytes() == many.held_out.read_bytes()


def test_a_stopped_build_goes_on_where_it_was(tmp_path: Path, verified: list[list[int]]) -> None:
    whole = build.build_dataset(CONFIG, tmp_path / "whole")
    verified.clear()
    part = build.build_dataset(CONFIG, tmp_path / "cut", should_stop=lambda: True)
    assert not part.stats["complete"]
    assert 0 < part.stats["train"] < whole.stats["train"]
    first = (tmp_path / "cut" / "shards" / "00000.jsonl").stat().st_mtime_ns
    rest = build.build_dataset(CONFIG, tmp_path / "cut")
    assert rest.stats["complete"]
    assert rest.train.read_bytes() == whole.train.read_bytes()
    assert (tmp_path / "cut" / "shards" / "00000.jsonl").stat().st_mtime_ns == first


def test_duplicates_and_evaluation_problems_are_never_verified(
    tmp_path: Path, verified: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = {i: build.draw(0, i % 40) for i in range(120)}
    evaluation = pairs[3].problem_code
    monkeypatch.setattr(build, "draw", lambda seed, index: pairs[index])
    monkeypatch.setattr(build, "is_evaluation_problem", lambda code: code == evaluation)
    stats = build.build_dataset(CONFIG, tmp_path).stats
    done = [i for group in verified for i in group]
    assert len(done) == len(set(done)) <= 39
    assert max(done) < 40
    assert 3 not in done
    assert stats["rejected"]["evaluation problem"] == 3
    assert stats["rejected"]["duplicate"] >= 78


def test_a_folder_with_other_settings_is_refused(tmp_path: Path, verified: list[list[int]]) -> None:
    build.build_dataset(CONFIG, tmp_path)
    with pytest.raises(DataError, match="other settings"):
        build.build_dataset(CONFIG.model_copy(update={"seed": 1}), tmp_path)


def test_records_survive_the_disk_and_bad_lines_are_named(tmp_path: Path) -> None:
    record = PairRecord(
        index=3, family="f", schedule="s", ops=("a", "b"), problem_code="p\n", kernel_code='k"\n'
    )
    path = tmp_path / "x.jsonl"
    write_records(path, [record, record])
    assert list(read_records(path)) == [record, record]
    path.write_text(json.dumps({"index": 1}) + "\n")
    with pytest.raises(DataError, match=r"x\.jsonl:1 is not a pair"):
        list(read_records(path))
    with pytest.raises(DataError, match="cannot be read"):
        list(read_records(tmp_path / "none.jsonl"))
