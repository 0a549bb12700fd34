"""Numbers without a value: which declarations get one, and which must stay as they are."""

import pytest

from dice.toolchain.compiler import accepts, find_compiler
from dice.toolchain.rewrite import rewrite

UNSET = " = ::simt::Unset()"


def inside(body: str, head: str = "__global__ void k(int n)") -> str:
    """The rewritten body of a function."""
    return rewrite(f"{head} {{{body}}}").text.removeprefix(f"{head} {{").removesuffix("}")


@pytest.mark.parametrize(
    "body",
    [
        "float m@;",
        "float a@, b = 2, c@;",
        "unsigned int u@; long long w@; int64_t z@; bool hit@;",
        "for (int i = 0; i < n; i++) { double d@; d = i; }",
        "if (n) { int k@ /* set below */; k = n; }",
        "auto f = [&] { float inner@; return inner; };",
        "float\n  m@;\nint after@;",
    ],
)
def test_numbers_get_a_value(body):
    assert inside(body.replace("@", "")) == body.replace("@", UNSET)


@pytest.mark.parametrize(
    "body",
    [
        "float m = 0, k{1}, j(2);",
        "float a[4], *p; float4 v; T t; static int s; const float c = 1; extern float e;",
        "for (int i, j = 0; j < n; j++) {}",
        "switch (n) { int a; case 0: int b; break; }",
        "again: float m; if (n) goto again;",
        "int f(int); using number = float; struct S { float x; };",
    ],
)
def test_other_declarations_stay(body):
    assert UNSET not in inside(body)


@pytest.mark.parametrize(
    ("head", "changes"),
    [
        ("template <class T> __device__ __forceinline__ float f(T* x)", True),
        ("static __device__ float f()", True),
        ("__host__ __device__ inline float f()", True),
        ("extern \"C\" __global__ void k()", True),
        ("torch::Tensor run(torch::Tensor x)", False),
        ("__device__ constexpr float f()", False),
    ],
)  # fmt: skip
def test_only_device_code_is_changed(head, changes):
    assert (UNSET in inside("float m; m = 1;", head)) == changes


def test_methods_of_a_device_struct_are_device_code():
    text = "struct S { __device__ float f() { float m; return m; } void g() { float k; } };"
    assert rewrite(text).text == text.replace("float m", f"float m{UNSET}")


def test_a_flag_that_the_compiler_does_not_know_is_not_used():
    assert accepts(find_compiler(), "-fPIC")
    assert not accepts(find_compiler(), "-fno-such-flag-at-all")
