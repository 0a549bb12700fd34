from pathlib import Path

import pytest

from dice.cli.dropin import MARK, check_destination, write_dropin
from dice.errors import UserError
from dice.rollout import Attempt
from dice.types import Candidate, Completion, Evidence, Problem, Reward, Verdict, VerdictKind

PROBLEM = Problem(name="p", code="", path="p.py")
ATTEMPT = Attempt(
    candidate=Candidate(problem="p", code="import torch\nclass ModelNew: ...", name="candidate 2"),
    completion=Completion(
        prompt_ids=(),
        token_ids=(),
        steps=(),
        logprobs=(),
        text="",
        finish_reason="stop",
        forwards=1,
        seed=3,
    ),
    verdict=Verdict(
        kind=VerdictKind.CORRECT,
        evidence=(Evidence(kind="matched", message="5 fresh inputs, " + "long " * 40),),
        notes=("N 4096 -> 64",),
        nvcc="not_available",
    ),
    reward=Reward(value=1.0, rule="compiled_and_correct"),
)


def test_the_header_says_how_it_was_checked_and_the_code_follows_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "p_kernel.py"
    write_dropin(path, PROBLEM, ATTEMPT, version="9", origin="nano, seed 0")
    text = path.read_text()
    head, code = text.split("\n\n", 1)
    assert code == ATTEMPT.candidate.code + "\n"
    assert all(line.startswith("# ") and len(line) <= 96 for line in head.splitlines())
    flat = " ".join(line.removeprefix("#").strip() for line in head.splitlines())
    for expected in (
        "candidate 2",
        "5 fresh inputs",
        "N 4096 -> 64",
        "NOT compiled by nvcc",
        "p.py",
    ):
        assert expected in flat
    assert [p.name for p in tmp_path.iterdir()] == ["p_kernel.py"]


def test_our_own_file_may_be_overwritten_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "k.py"
    check_destination(path, force=False)
    write_dropin(path, PROBLEM, ATTEMPT, version="9", origin="o")
    check_destination(path, force=False)
    path.write_text("mine = 1\n")
    with pytest.raises(UserError, match="was not written by dice"):
        check_destination(path, force=False)
    check_destination(path, force=True)


def test_a_missing_folder_and_a_folder_as_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a folder"):
        check_destination(tmp_path / "no" / "k.py", force=False)
    with pytest.raises(UserError, match="is a folder"):
        check_destination(tmp_path, force=True)


def test_a_failed_write_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Path, target: Path) -> Path:
        raise OSError("disk full")

    monkeypatch.setattr(Path, "replace", broken)
    with pytest.raises(OSError, match="disk full"):
        write_dropin(tmp_path / "k.py", PROBLEM, ATTEMPT, version="9", origin="o")
    assert list(tmp_path.iterdir()) == []


def test_the_mark_is_what_the_header_starts_with(tmp_path: Path) -> None:
    path = tmp_path / "k.py"
    write_dropin(path, PROBLEM, ATTEMPT, version="9", origin="o")
    assert path.read_text().startswith(MARK)
