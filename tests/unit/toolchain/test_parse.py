"""Parsing: real sources, functions and their parameters, includes, macro bodies."""

import ast
import json
from typing import Any

import pytest

from dice.toolchain.parse import functions, includes, macro_names, parse
from dice.toolchain.rewrite import rewrite
from tests.data import shared_data


def inline_sources() -> list[tuple[int, str]]:
    """Every C++ and CUDA text that the infilling answers pass to load_inline."""
    found = []
    with shared_data("dice_infilling_eval_99.jsonl").open() as file:
        records = [json.loads(line) for line in file]
    for number, record in enumerate(records):
        tree = ast.parse(record["prefix"] + record["middle"] + record["suffix"])
        names: dict[str, Any] = {}
        for statement in tree.body:
            if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant):
                names[ast.unparse(statement.targets[0])] = statement.value.value
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("load_inline"):
                for keyword in call.keywords:
                    if keyword.arg in ("cpp_sources", "cuda_sources"):
                        text = eval(ast.unparse(keyword.value), {}, dict(names))
                        texts = [text] if isinstance(text, str) else text
                        found += [(number, one) for one in texts]
    return found


def test_real_sources_parse_and_keep_their_lines() -> None:
    sources = inline_sources()
    assert len({number for number, _ in sources}) >= 97
    for number, text in sources:
        assert not parse(text).has_error, f"answer {number}"
        rewritten = rewrite(text)
        assert rewritten.text.count("\n") == text.count("\n"), f"answer {number}"
        assert "<<<" not in rewritten.text
        assert rewritten.launches == text.count("<<<"), f"answer {number}"


def test_functions_with_types_and_defaults() -> None:
    text = """
std::vector<torch::Tensor> f(const torch::Tensor& x, std::vector<int64_t> dims = {1, 2},
                             c10::optional<at::Tensor> bias = c10::nullopt);
namespace inner { int g(int a[3], double* b) { return 0; } }
template <typename T> __global__ void k(T* __restrict__ out, int n) {}
void nothing(void);
"""
    found = {one.name: one for one in functions(parse(text))}
    f = found["f"]
    assert [(one.name, one.type, one.default) for one in f.parameters] == [
        ("x", "const torch::Tensor&", None),
        ("dims", "std::vector<int64_t>", "{1, 2}"),
        ("bias", "c10::optional<at::Tensor>", "c10::nullopt"),
    ]
    assert not f.is_definition
    assert found["inner::g"].is_definition
    assert [one.type for one in found["inner::g"].parameters] == ["int [3]", "double*"]
    assert found["k"].is_template
    assert found["k"].is_kernel
    assert found["nothing"].parameters == ()


def test_includes_and_macros_with_their_lines() -> None:
    source = parse(
        '#include <cuda.h>\n// #include <no.h>\n#include "own.h"\n#define A 1\n#define B(x) x\n'
    )
    assert [(one.path, one.line) for one in includes(source)] == [("<cuda.h>", 1), ('"own.h"', 3)]
    assert macro_names(source) == ["A", "B"]


@pytest.mark.parametrize("text", ["", "\n", "}}}", "__global__ void k(", "\x00", "é <<< ü"])
def test_parsing_never_raises(text: str) -> None:
    assert parse(text).text == text.encode()
