"""Headers of the candidate's own are pasted in, and only those."""

import pytest

from dice.toolchain.includes import LIMIT, CannotPaste, expand


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "a.h").write_text('#include "inner/b.h"\nint a;\n')
    (tmp_path / "inner" / "b.h").write_text('#pragma once\n#include "c.h"\nint b;\n')
    (tmp_path / "inner" / "c.h").write_text("int c;\n")
    return tmp_path


def code(text):
    return [line for line in text.splitlines() if line.strip()]


def test_headers_include_from_where_they_are(folder):
    text = expand('#include "a.h"\nint own;\n', beside=folder, folders=[])
    assert code(text) == ["int c;", "int b;", "int a;", "int own;"]


def test_once_is_once_and_guards_are_left_to_the_preprocessor(folder):
    text = expand(
        '#include "inner/b.h"\n#include "a.h"\n#include "inner/c.h"\n', beside=folder, folders=[]
    )
    assert code(text) == ["int c;", "int b;", "int a;", "int c;"]


def test_what_is_not_the_candidates_stays(folder):
    text = '#include <torch/extension.h>\n#  include "cuda_runtime.h"\n// "a.h"\nconst char* s = "a.h";\n'
    assert expand(text, beside=folder, folders=[]) == text
    assert expand("#include <a.h>\n", beside=folder, folders=[]) == "#include <a.h>\n"


def test_angle_brackets_look_in_the_named_folders_only(folder):
    assert code(expand("#include <b.h>\n", beside=None, folders=[folder / "inner"])) == [
        "int c;",
        "int b;",
    ]


def test_headers_without_end_and_libraries_are_refused(folder):
    (folder / "loop.h").write_text('#include "loop.h"\n')
    with pytest.raises(CannotPaste, match="without end"):
        expand('#include "loop.h"\n', beside=folder, folders=[])
    (folder / "large.h").write_text("x" * (LIMIT // 8) + "\n")
    for name, inner in (
        ("two.h", "large.h"),
        ("four.h", "two.h"),
        ("eight.h", "four.h"),
        ("all.h", "eight.h"),
    ):
        (folder / name).write_text(f'#include "{inner}"\n' * 2)
    with pytest.raises(CannotPaste, match="characters"):
        expand('#include "all.h"\n', beside=folder, folders=[])


def test_a_header_that_is_no_text_is_refused(folder):
    (folder / "odd.h").write_bytes(b"\xff\xfe")
    with pytest.raises(CannotPaste, match=r"odd\.h"):
        expand('#include "odd.h"\n', beside=folder, folders=[])
