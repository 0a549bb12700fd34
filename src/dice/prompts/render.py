"""Problem -> Prompt.

The one template so far is "nano": the problem's canonical code between two special tokens, and nothing
else, because the small model was trained on exactly that.
"""

import ast
from collections.abc import Callable

from dice.errors import ProblemError, UserError
from dice.types import Problem, Prompt

PROBLEM_TOKEN = "<|problem|>"
KERNEL_TOKEN = "<|kernel|>"


def render(problem: Problem, template: str = "nano") -> Prompt:
    """Render `problem` with a named template.

    Raises:
        UserError: no such template.
        ProblemError: the problem is not valid Python.
    """
    if template not in _TEMPLATES:
        known = ", ".join(sorted(_TEMPLATES))
        raise UserError(f"no prompt template {template!r}; there is {known}")
    text = _TEMPLATES[template](problem)
    return Prompt(problem=problem.name, template=template, text=text)


def canonical_code(code: str) -> str:
    """The code as its syntax tree prints: no comments, docstrings or type annotations, one way to call
    `super().__init__()`. What the module computes, and every name in it, stays.

    Raises:
        ProblemError: not valid Python.
    """
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError) as e:
        raise ProblemError(f"not valid Python: {e}") from e
    return ast.unparse(ast.fix_missing_locations(_Canonical().visit(tree))) + "\n"


def _nano(problem: Problem) -> str:
    return f"{PROBLEM_TOKEN}{canonical_code(problem.code)}{KERNEL_TOKEN}"


_TEMPLATES: dict[str, Callable[[Problem], str]] = {"nano": _nano}


class _Canonical(ast.NodeTransformer):
    def visit_Module(self, node: ast.Module) -> ast.Module:
        self._strip(node)
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        self._strip(node)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.returns = None
        self._strip(node)
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return ast.arg(arg=node.arg, annotation=None)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        if node.value is None:
            return None
        return ast.Assign(targets=[node.target], value=self.visit(node.value))

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "super":
            return ast.Call(func=node.func, args=[], keywords=[])
        return node

    def _strip(self, node: ast.Module | ast.ClassDef | ast.FunctionDef) -> None:
        node.body = [
            s
            for s in node.body
            if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))
        ] or [ast.Pass()]
        self.generic_visit(node)
