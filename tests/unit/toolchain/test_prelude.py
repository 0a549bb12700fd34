"""The prelude: what its keys depend on, what is removed, how it fails."""

import os
import stat
import time
from pathlib import Path

import pytest

from dice.errors import ToolchainError
from dice.toolchain import compiler, prelude
from dice.toolchain.source import BuildOptions


def test_one_header_per_mode_and_optimisation() -> None:
    def header(check: bool, level: str, full: bool = False) -> Path:
        return prelude._header_dir(BuildOptions(check=check, optimisation=level), full)

    folders = [
        header(False, "-O1"),
        header(True, "-O1"),
        header(False, "-O0"),
        header(False, "-O1", True),
    ]
    assert len(set(folders)) == 4
    assert header(False, "-O1") == folders[0]


def test_unused_headers_are_removed(tmp_path: Path) -> None:
    for name, age in (("old", prelude.UNUSED_S + 100), ("new", 10)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("x")
        moment = os.stat(tmp_path).st_mtime - age
        os.utime(tmp_path / name, (moment, moment))
    prelude.remove_unused(tmp_path)
    assert [one.name for one in tmp_path.iterdir()] == ["new"]


def test_headers_over_the_size_limit_go_but_never_those_in_use(tmp_path: Path) -> None:
    now = time.time()
    for name, idle_s in (("in_use", 10), ("recent", 4000), ("older", 5000), ("oldest", 6000)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "header.gch").write_bytes(bytes(1 << 20))
        os.utime(tmp_path / name, (now - idle_s, now - idle_s))
    prelude.remove_unused(tmp_path, limit_mib=2)
    assert {one.name for one in tmp_path.iterdir()} == {"in_use", "recent"}
    prelude.remove_unused(tmp_path, limit_mib=0)
    assert {one.name for one in tmp_path.iterdir()} == {"in_use"}


def test_a_compiler_that_fails_on_our_own_sources_is_a_toolchain_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "g++"
    broken.write_text(
        "#!/bin/sh\n[ \"$1\" = --version ] && echo g++ 0 && exit 0\necho 'x.cpp:1:1: error: too old'\nexit 1\n"
    )
    broken.chmod(broken.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("CXX", str(broken))
    compiler.find_compiler.cache_clear()
    said: list[str] = []
    try:
        with pytest.raises(ToolchainError, match=r"too old"):
            prelude.ensure_prelude(BuildOptions(cache_dir=str(tmp_path / "cache")), said.append)
    finally:
        compiler.find_compiler.cache_clear()
    assert "once" in said[0]
    assert list((tmp_path / "cache" / "tmp").iterdir()) == []
