"""What is passed on of a compiler's words, and what is said when there is no compiler."""

from pathlib import Path

import pytest

from dice.errors import ToolchainError
from dice.toolchain import compiler
from dice.toolchain.compiler import candidate_messages

OWN = {"cuda_source": "line one\n  int x = y;\n  k(1);\n"}
TRUSTED = ["/opt/torch/include/"]


def texts(output: str) -> list[str]:
    return [
        f"{one.file}:{one.line}: {one.text}" for one in candidate_messages(output, OWN, TRUSTED)
    ]


def test_errors_at_own_lines_carry_the_source_line() -> None:
    [message] = candidate_messages("cuda_source:2:11: error: 'y' was not declared\n", OWN, TRUSTED)
    assert (message.line, message.column, message.source_line) == (2, 11, "int x = y;")
    assert str(message).startswith("cuda_source:2:11: error: 'y' was not declared")


def test_foreign_files_are_not_quoted() -> None:
    output = (
        "In file included from cuda_source:1:\n"
        "/etc/shadow:1:1: error: 'root' does not name a type\n"
        "/etc/shadow:2:5: error: stray '$' in program\n"
    )
    assert texts(output) == []


def test_a_template_error_in_a_header_is_reported_where_it_was_asked_for() -> None:
    output = (
        "/opt/torch/include/a.h: In instantiation of 'void f(T)':\n"
        "cuda_source:3:4:   required from here\n"
        "/opt/torch/include/a.h:7:9: error: no type named 'q'\n"
    )
    assert texts(output) == ["cuda_source:3: no type named 'q'"]


def test_an_error_in_a_header_of_the_toolchain_is_reported_at_the_include() -> None:
    output = (
        "In file included from /opt/torch/include/b.h:2,\n"
        "                 from cuda_source:3:\n"
        "/opt/torch/include/a.h:7:9: fatal error: cudnn.h: No such file or directory\n"
    )
    assert texts(output) == ["cuda_source:3: cudnn.h: No such file or directory"]


def test_an_error_in_a_macro_is_reported_where_it_expands() -> None:
    output = (
        "/opt/torch/include/a.h:7:9: error: too few arguments to function\n"
        "cuda_source:3:4: note: in expansion of macro 'SIMT_LAUNCH'\n"
    )
    assert texts(output) == ["cuda_source:3: too few arguments to function"]


def test_warnings_and_notes_are_left_out() -> None:
    assert texts("cuda_source:2:1: warning: unused\ncuda_source:2:1: note: here\n") == []


def test_a_missing_compiler_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    compiler.find_compiler.cache_clear()
    try:
        with pytest.raises(ToolchainError, match=r"apt install g\+\+.*dnf install gcc-c\+\+"):
            compiler.find_compiler()
    finally:
        compiler.find_compiler.cache_clear()
