"""Rewriting: launches, shared memory, the device, and where each character ends up."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dice.errors import BuildFailure
from dice.toolchain.rewrite import rewrite


def inside(body: str) -> str:
    """The rewritten body of a function."""
    text = rewrite(f"void f() {{{body}}}").text
    return text.removeprefix("void f() {").removesuffix("}")


@pytest.mark.parametrize(
    ("launch", "expected"),
    [
        ("k<<<1, 2>>>();", "SIMT_LAUNCH((k), (1, 2));"),
        ("k<<<1, 2>>>(x, y);", "SIMT_LAUNCH((k), (1, 2), x, y);"),
        ("k<float, 4><<<g, b, 0, s>>>(x);", "SIMT_LAUNCH((k<float, 4>), (g, b, 0, s), x);"),
        ("ns::k<T><<<g, b>>>(x);", "SIMT_LAUNCH((ns::k<T>), (g, b), x);"),
        ("(*fn)<<<g, b>>>(x);", "SIMT_LAUNCH(((*fn)), (g, b), x);"),
        ("k<(N > 3)><<<g, b>>>(x);", "SIMT_LAUNCH((k<(N > 3)>), (g, b), x);"),
        (
            "k<<<dim3((n + 1) / 2, f(3)), b>>>(x);",
            "SIMT_LAUNCH((k), (dim3((n + 1) / 2, f(3)), b), x);",
        ),
        ("k<<<g, b, n>>2>>>(x);", "SIMT_LAUNCH((k), (g, b, n>>2), x);"),
        ("k<<<a<b?1:2, 1>>>(x);", "SIMT_LAUNCH((k), (a<b?1:2, 1), x);"),
        (
            "k<<<1, 1>>>([&] { return 1 < 2; }());",
            "SIMT_LAUNCH((k), (1, 1), [&] { return 1 < 2; }());",
        ),
        (
            "if (x) k<1><<<g, b>>>(x); else k<2><<<g, b>>>(y);",
            "if (x) SIMT_LAUNCH((k<1>), (g, b), x); else SIMT_LAUNCH((k<2>), (g, b), y);",
        ),
        ("D(t, [&] { k<T><<<g, b>>>(x); });", "D(t, [&] { SIMT_LAUNCH((k<T>), (g, b), x); });"),
        (
            "k<<<1, 1>>>(g(h<<<2, 2>>>(y)));",
            "SIMT_LAUNCH((k), (1, 1), g(SIMT_LAUNCH((h), (2, 2), y)));",
        ),
        ('s = "k<<<1, 2>>>(x)"; // k<<<1, 2>>>(x)', 's = "k<<<1, 2>>>(x)"; // k<<<1, 2>>>(x)'),
        (
            "CHECK k<T><<<(n<<1), b, n>>2>>>(x) END;",
            "CHECK SIMT_LAUNCH((k<T>), ((n<<1), b, n>>2), x) END;",
        ),
    ],
)
def test_launches(launch: str, expected: str) -> None:
    if launch.endswith("(x)"):
        launch, expected = launch + "\n", expected + "\n"
    assert inside(launch) == expected


def test_a_launch_over_several_lines_keeps_its_lines() -> None:
    text = "k<float,\n  3>\n<<<g,  // grid\n   b>>>(\n  x,\n  y);\n"
    assert inside(text) == "SIMT_LAUNCH((k<float,\n  3>\n), (g,  // grid\n   b), \n  x,\n  y);\n"


def test_launch_in_a_macro_body() -> None:
    text = "#define LAUNCH(T, n) \\\n  k<T> \\\n  <<<n, \\\n  2>>>(x)\nint after;\n"
    expected = (
        "#define LAUNCH(T, n) \\\n  SIMT_LAUNCH((k<T> \\\n  ), (n, \\\n  2), x)\nint after;\n"
    )
    assert rewrite(text).text == expected


@pytest.mark.parametrize("text", ["void f() { k<<<1, 2; }", "k<<<1"])
def test_a_broken_launch_is_a_build_failure_at_its_line(text: str) -> None:
    with pytest.raises(BuildFailure, match=r"cuda_source:2: "):
        rewrite("\n" + text)


def test_shared_declarations() -> None:
    body = inside("__shared__ float a[4]  // rows\n  [N + 1], *p; int b;")
    assert "using simt_type_a = simt_base_a [ 4 ] [ N + 1 ];" in body
    assert "using simt_type_p = simt_base_a *;" in body
    assert body.count("\n") == 1
    assert body.endswith(" int b;")
    assert body.count("shared_var(") == 2


@pytest.mark.parametrize(
    ("declaration", "alignment"),
    [
        ("__shared__ __align__(16) float d[4];", "16"),
        ("__align__(16) __shared__ float d[4];", "16"),
        ("alignas(32) __shared__ float d[4];", "32"),
        ("__shared__ double d;", "alignof(simt_type_d)"),
        ("static __shared__ volatile int d[2];", "alignof(simt_type_d)"),
    ],
)
def test_shared_alignment(declaration: str, alignment: str) -> None:
    assert f"sizeof(simt_type_d), {alignment}," in inside(declaration)


def test_dynamic_shared_memory() -> None:
    body = inside("extern __shared__ __align__(16) unsigned char raw[];")
    assert body == (
        "using simt_base_raw = unsigned char; using simt_type_raw = simt_base_raw ; "
        "simt_type_raw* raw = (simt_type_raw*)::simt::dyn_shared();"
    )


def test_a_parameter_hides_shared_memory_of_its_name() -> None:
    text = "__shared__ float s[4];\n__device__ float g(float* s) { return s[0]; }\n"
    assert "return s[0];" in rewrite(text).text


def test_shared_memory_at_file_scope_is_found_where_it_is_used() -> None:
    text = rewrite(
        "extern __shared__ float s[];\n__global__ void k(float* x) { x[0] = s[1]; }\n"
    ).text
    assert "x[0] = ((simt_type_s*)::simt::dyn_shared())[1];" in text


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("x.is_cuda()", "x.is_cpu()"),
        ("x.device().is_cuda()", "x.device().is_cpu()"),
        ("x.is_cpu()", "x.is_cuda()"),
        ("x.to(torch::kCUDA)", "x.to(torch::kCPU)"),
        ("c10::DeviceType::CUDA", "c10::DeviceType::CPU"),
        ('torch::Device("cuda:0")', 'torch::Device("cpu")'),
        ("x.cuda()", "x.cpu()"),
        ("at::cuda::getCurrentCUDAStream()", "at::cuda::getCurrentCUDAStream()"),
        ('check("cuda is nice")', 'check("cuda is nice")'),
    ],
)
def test_device_names(code: str, expected: str) -> None:
    assert inside(f"auto v = {code};") == f"auto v = {expected};"


def test_device_names_in_a_macro() -> None:
    text = '#define CHECK(x) TORCH_CHECK(x.is_cuda(), #x " must be a CUDA tensor")\n'
    assert rewrite(text).text == text.replace("is_cuda", "is_cpu")


PIECES = st.sampled_from(
    ["k<<<g, b>>>(x);", "__shared__ float s[3];", "// c <<<\n", "\n", "a < b;", '"<<<";', "/* \n */", "if (x) {", "}",
     "x.is_cuda();", "extern __shared__ int d[];", "int n = (m << 2) >> 1;", "é;"]
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(PIECES, max_size=12))
def test_lines_are_kept_whatever_the_source(pieces: list[str]) -> None:
    text = "void f() {\n" + " ".join(pieces) + "\n}\n"
    try:
        rewritten = rewrite(text).text
    except BuildFailure:
        return
    assert rewritten.count("\n") == text.count("\n")
