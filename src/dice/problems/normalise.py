"""When are two problem files the same problem? The comparison that keeps evaluation out of training.

The whole file's syntax tree with comments, docstrings and type annotations dropped, local names renamed
in order of appearance, and numbers zeroed (DESIGN section 6). Two files that differ only in layout,
names, sizes or constants have equal hashes.
"""

import ast
import builtins
import hashlib
from typing import TypeVar

from dice.errors import ProblemError

_Scope = TypeVar("_Scope", ast.Module, ast.ClassDef, ast.FunctionDef)
_KEPT_NAMES = frozenset(dir(builtins)) | {"Model", "get_inputs", "get_init_inputs", "self", "super"}
_KEPT_METHODS = frozenset({"__init__", "forward"})


def normalised_code(code: str) -> str:
    """The canonical text that `normalised_hash` digests; readable, for debugging a match.

    Raises:
        ProblemError: not valid Python.
    """
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError) as e:
        raise ProblemError(f"not valid Python: {e}") from e
    return ast.unparse(ast.fix_missing_locations(_Normaliser(tree).visit(tree)))


def normalised_hash(code: str) -> str:
    """Hex SHA-256 of `normalised_code`."""
    return hashlib.sha256(normalised_code(code).encode()).hexdigest()


class _Normaliser(ast.NodeTransformer):
    def __init__(self, tree: ast.Module) -> None:
        self._imported = _imported_names(tree)
        self._renamed: dict[str, str] = {}
        self._attributes = _own_attributes(tree)
        self._defined = {
            n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.ClassDef)
        }

    def _rename(self, name: str) -> str:
        if name in _KEPT_NAMES or name in self._imported:
            return name
        return self._renamed.setdefault(name, f"v{len(self._renamed)}")

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(id=self._rename(node.id), ctx=node.ctx)

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return ast.arg(arg=self._rename(node.arg), annotation=None)

    def visit_Call(self, node: ast.Call) -> ast.Call:
        # Keywords of the file's own functions and classes are local names; torch's are not.
        own = isinstance(node.func, ast.Name) and node.func.id in self._defined
        keywords = [
            ast.keyword(
                arg=self._rename(k.arg) if own and k.arg else k.arg, value=self.visit(k.value)
            )
            for k in node.keywords
        ]
        return ast.Call(
            func=self.visit(node.func), args=[self.visit(a) for a in node.args], keywords=keywords
        )

    def visit_Attribute(self, node: ast.Attribute) -> ast.Attribute:
        attr = node.attr
        if (
            isinstance(node.value, ast.Name)
            and node.value.id == "self"
            and attr in self._attributes
        ):
            attr = self._rename("self." + attr)
        return ast.Attribute(value=self.visit(node.value), attr=attr, ctx=node.ctx)

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        if isinstance(node.value, int | float) and not isinstance(node.value, bool):
            return ast.Constant(value=0)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        if node.value is None:
            return None
        return ast.Assign(targets=[self.visit(node.target)], value=self.visit(node.value))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        if node.name not in _KEPT_METHODS:
            node.name = self._rename(node.name)
        node.returns = None
        return self._body(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        node.name = self._rename(node.name)
        return self._body(node)

    def visit_Module(self, node: ast.Module) -> ast.Module:
        return self._body(node)

    def _body(self, node: _Scope) -> _Scope:
        node.body = [s for s in node.body if not _is_docstring(s)] or [ast.Pass()]
        self.generic_visit(node)
        return node


def _is_docstring(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def _imported_names(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names.update((a.asname or a.name).split(".")[0] for a in node.names)
    return names


def _own_attributes(tree: ast.Module) -> set[str]:
    """Attributes that the file itself assigns on `self`: local names, unlike torch's own."""
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }
