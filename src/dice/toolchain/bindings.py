"""CPython bindings without pybind11: what to bind, and the C++ text that binds it.

Argument and return types are deduced by the compiler from the function itself. Calls behave as under
the stock `load_inline`: `functions=[...]` are positional and have no defaults (the stock bindings carry
neither); a `PYBIND11_MODULE` that only calls `m.def("name", &function, ...)` is understood, with
`py::arg("x") = value` giving keywords and defaults. Any other module body needs the real pybind11.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tree_sitter import Node

from dice.errors import BuildFailure
from dice.toolchain.parse import ParsedSource, descend, is_name, leaves, text_of
from dice.toolchain.source import ExtensionSources

MODULE_NAME = "simt_ext"


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """A `py::arg`: its keyword, and its default as C++ text."""

    name: str
    default: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """One Python function: `function` is the C++ expression to call."""

    python_name: str
    function: str
    arguments: tuple[Argument, ...] = ()
    line: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleDefinition:
    """A `PYBIND11_MODULE` block. `bindings` is None when it does more than plain `def` calls."""

    start: int
    end: int
    bindings: tuple[Binding, ...] | None


def find_module(source: ParsedSource) -> ModuleDefinition | None:
    """The `PYBIND11_MODULE` of a source, if it has one."""
    for node in descend(source.root):
        if node.type != "function_definition":
            continue
        declarator = node.child_by_field_name("declarator")
        body = node.child_by_field_name("body")
        if (
            declarator is None
            or body is None
            or not text_of(declarator).startswith("PYBIND11_MODULE")
        ):
            continue
        parameters = [one for one in leaves(declarator) if is_name(one)]
        variable = text_of(parameters[-1])
        found: list[Binding] | None = []
        for statement in body.named_children:
            if statement.type == "comment":
                continue
            binding = _definition(statement, variable)
            if binding is None and not _is_doc(statement, variable):
                found = None
                break
            if binding is not None and found is not None:
                found.append(binding)
        return ModuleDefinition(
            start=node.start_byte,
            end=node.end_byte,
            bindings=None if found is None else tuple(found),
        )
    return None


def _is_doc(statement: Node, variable: str) -> bool:
    return text_of(statement).replace(" ", "").startswith(f"{variable}.doc()=")


def _definition(statement: Node, variable: str) -> Binding | None:
    """`m.def("name", &function, ...)` as a binding; None if it is anything else."""
    call = statement.named_children[0] if statement.named_children else None
    if statement.type != "expression_statement" or call is None or call.type != "call_expression":
        return None
    function = call.child_by_field_name("function")
    arguments = call.child_by_field_name("arguments")
    if function is None or arguments is None or text_of(function) != f"{variable}.def":
        return None
    given = [one for one in arguments.named_children if one.type != "comment"]
    if len(given) < 2 or given[0].type != "string_literal":
        return None
    target = given[1]
    if target.type == "pointer_expression":
        target = target.child_by_field_name("argument") or target
    if target.type not in ("identifier", "qualified_identifier"):
        return None
    keywords: list[Argument] = []
    for extra in given[2:]:
        keyword = _argument(extra)
        if keyword is not None:
            keywords.append(keyword)
        elif extra.type not in ("string_literal", "concatenated_string", "raw_string_literal"):
            return None
    return Binding(
        python_name=text_of(given[0]).strip('"'),
        function=text_of(target),
        arguments=tuple(keywords),
        line=statement.start_point.row + 1,
    )


def _argument(node: Node) -> Argument | None:
    """`py::arg("x")` or `py::arg("x") = value`."""
    default = None
    if node.type == "assignment_expression":
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        if left is None or right is None:
            return None
        default = (
            "std::nullopt"
            if text_of(right) in ("py::none()", "pybind11::none()")
            else text_of(right)
        )
        node = left
    function = node.child_by_field_name("function") if node.type == "call_expression" else None
    if function is None or text_of(function) not in ("py::arg", "pybind11::arg"):
        return None
    strings = [one for one in descend(node) if one.type == "string_content"]
    return Argument(name=text_of(strings[0]), default=default) if strings else None


def requested_bindings(sources: ExtensionSources, cpp: ParsedSource) -> tuple[Binding, ...]:
    """Bindings for `functions=[...]`. As in the stock build, `cpp_sources` must declare each.

    Raises BuildFailure for one that it does not mention.
    """
    mentioned = {text_of(one) for one in leaves(cpp.root) if is_name(one)}
    for name in sources.functions:
        if name.rsplit("::", 1)[-1] not in mentioned:
            raise BuildFailure(
                f"cpp_source: error: function {name!r} is to be bound but cpp_sources does not declare it"
            )
    return tuple(Binding(python_name=name, function=name) for name in sources.functions)


HELPERS = r"""
template <class D> struct dice_default { D make; };
inline void dice_place(PyObject* const* given, Py_ssize_t count, PyObject* names, const char* const* keywords,
                       Py_ssize_t named, PyObject** slots, Py_ssize_t wanted, const char* function) {
  auto fail = [&](const std::string& why) { throw std::invalid_argument(std::string(function) + "(): incompatible function arguments: " + why); };
  if (count > wanted) fail(std::to_string(count) + " given, takes " + std::to_string(wanted));
  for (Py_ssize_t i = 0; i < count; ++i) slots[i] = given[i];
  Py_ssize_t extra = names ? PyTuple_GET_SIZE(names) : 0;
  for (Py_ssize_t k = 0; k < extra; ++k) {
    const char* name = PyUnicode_AsUTF8(PyTuple_GET_ITEM(names, k));
    Py_ssize_t at = 0;
    while (at < named && std::strcmp(keywords[at], name) != 0) ++at;
    if (at == named) fail(std::string("no keyword argument '") + name + "'");
    if (slots[at]) fail(std::string("argument '") + name + "' given twice");
    slots[at] = given[count + k];
  }
}
template <class A, class D> auto dice_value(PyObject* slot, int index, D fallback) {
  if constexpr (std::is_same_v<D, std::nullptr_t>) {
    if (!slot) throw std::invalid_argument("incompatible function arguments: argument " + std::to_string(index) + " is missing");
    return simt_get<std::decay_t<A>>(&slot, 1, 0, nullptr);
  } else {
    return simt_get<std::decay_t<A>>(&slot, slot ? 1 : 0, 0, fallback);
  }
}
template <class R, class... A, size_t... I, class... D>
PyObject* dice_invoke(R (*function)(A...), PyObject** slots, std::index_sequence<I...>, D... fallback) {
  simt::Pack<decltype(dice_value<A>(slots[I], int(I), fallback))...> values{{dice_value<A>(slots[I], int(I), fallback)}...};
  return values.apply([&](auto&... value) {
    if constexpr (std::is_void_v<R>) {
      function(static_cast<A&&>(value)...);
      return simt_none();
    } else {
      return simt_put(function(static_cast<A&&>(value)...));
    }
  });
}
template <class R, class... A, class... D>
PyObject* dice_call(const char* name, R (*function)(A...), PyObject* const* given, Py_ssize_t count, PyObject* names,
                    std::initializer_list<const char*> keywords, D... fallback) {
  return simt_guard([&]() -> PyObject* {
    PyObject* slots[sizeof...(A) + 1] = {};
    dice_place(given, count, names, keywords.begin(), keywords.size(), slots, sizeof...(A), name);
    if constexpr (sizeof...(D) == sizeof...(A)) return dice_invoke(function, slots, std::index_sequence_for<A...>(), fallback...);
    else return dice_invoke(function, slots, std::index_sequence_for<A...>(), ((void)sizeof(A), nullptr)...);
  });
}
"""
"""Belongs in the precompiled header, after `simt_bind.h`."""


def wrappers(bindings: Sequence[Binding], prefix: str = "") -> str:
    """C++ that defines one `PyObject*` function per binding, on one line each."""
    lines = []
    for index, one in enumerate(bindings):
        keywords = ", ".join(f'"{argument.name}"' for argument in one.arguments)
        fallback = "".join(
            ", nullptr" if argument.default is None else f", [] {{ return {argument.default}; }}"
            for argument in one.arguments
        )
        lines.append(
            f"static PyObject* dice_py_{index}(PyObject*, PyObject* const* a, Py_ssize_t n, PyObject* k) "
            f'{{ return dice_call("{one.python_name}", &{prefix}{one.function}, a, n, k, '
            f"{{{keywords}}}{fallback}); }}"
        )
    return "\n".join(lines)


def module_code(tables: Sequence[tuple[str, str, Sequence[Binding]]]) -> str:
    """The method table and `PyInit` of the whole shared object.

    Each table is (prefix of the Python names, C++ scope of the wrappers, bindings).
    """
    entries = [
        f'{{"{prefix}{one.python_name}", (PyCFunction)(void*)&{scope}dice_py_{index}, '
        "METH_FASTCALL | METH_KEYWORDS, nullptr}"
        for prefix, scope, bindings in tables
        for index, one in enumerate(bindings)
    ]
    methods = ", ".join([*entries, "{nullptr, nullptr, 0, nullptr}"])
    return (
        f"static PyMethodDef dice_methods[] = {{{methods}}};\n"
        f'static PyModuleDef dice_module = {{PyModuleDef_HEAD_INIT, "{MODULE_NAME}", nullptr, -1, dice_methods}};\n'
        f'extern "C" __attribute__((visibility("default"))) PyObject* PyInit_{MODULE_NAME}() '
        "{ return PyModule_Create(&dice_module); }\n"
    )
