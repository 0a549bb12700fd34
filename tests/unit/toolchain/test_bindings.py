"""Which functions are bound and with what arguments."""

import pytest

from dice.errors import BuildFailure
from dice.toolchain.bindings import Argument, find_module, requested_bindings
from dice.toolchain.parse import parse
from dice.toolchain.source import ExtensionSources


def module(body: str) -> str:
    return f"PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ {body} }}"


def test_plain_definitions_are_understood() -> None:
    found = find_module(
        parse(
            module(
                'm.doc() = "text"; m.def("forward", &f, "doc"); /* c */ '
                'm.def("g", ns::g, py::arg("x"), py::arg("eps") = 1e-5, pybind11::arg("b") = py::none());'
            )
        )
    )
    assert found is not None
    assert found.bindings is not None
    assert [(one.python_name, one.function) for one in found.bindings] == [
        ("forward", "f"),
        ("g", "ns::g"),
    ]
    assert found.bindings[1].arguments == (
        Argument(name="x"),
        Argument(name="eps", default="1e-5"),
        Argument(name="b", default="std::nullopt"),
    )


@pytest.mark.parametrize(
    "body",
    [
        'm.def("f", [](int x) { return x; });',
        'py::class_<A>(m, "A").def(py::init<>());',
        'm.def("f", py::overload_cast<int>(&f));',
        'm.def("f", &f, py::call_guard<py::gil_scoped_release>());',
        "for (int i = 0; i < 2; ++i) {}",
    ],
)
def test_other_module_bodies_need_pybind11(body: str) -> None:
    found = find_module(parse(module(body)))
    assert found is not None
    assert found.bindings is None


def test_no_module() -> None:
    assert find_module(parse("// PYBIND11_MODULE(a, m) {}\nint f();")) is None


def test_a_function_that_cpp_sources_does_not_declare_is_refused() -> None:
    sources = ExtensionSources(name="e", cpp_sources="int g(int x); // f", functions=("g", "f"))
    with pytest.raises(BuildFailure, match="'f' is to be bound"):
        requested_bindings(sources, parse(sources.cpp_sources))


def test_sources_from_the_arguments_of_load_inline() -> None:
    sources = ExtensionSources.from_inline("e", ["a", "b"], None, {"f": "doc", "g": ""})
    assert (sources.cpp_sources, sources.cuda_sources, sources.functions) == (
        "a\nb",
        "",
        ("f", "g"),
    )
    assert ExtensionSources.from_inline("e", "a", "c", "f").functions == ("f",)
