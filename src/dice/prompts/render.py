"""Problem -> Prompt, by named templates.

"nano" is the problem's canonical code between two special tokens and nothing else, because the small model
was trained on exactly that. "kernelbench" (one example, then the problem) and "infilling" (a prefix and a
suffix as well) are for chat models; their texts lie in `templates/`. A checkpoint may bring texts of its own
under these or other names; theirs win. In a text, `{{problem}}`, `{{prefix}}` and `{{suffix}}` stand for code.
"""

import ast
import re
from collections.abc import Iterable, Mapping
from importlib import resources

from dice.errors import ProblemError, UserError
from dice.types import Message, Problem, Prompt

PROBLEM_TOKEN = "<|problem|>"
KERNEL_TOKEN = "<|kernel|>"
NANO, KERNELBENCH, INFILLING = "nano", "kernelbench", "infilling"
_PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}")


def render(
    problem: Problem, template: str = NANO, *, texts: Mapping[str, str] | None = None
) -> Prompt:
    """Render `problem` with a named template.

    Args:
        texts: texts by template name that win over the package's, a checkpoint's `template_texts`.

    Raises:
        UserError: no such template, or one that wants more than the problem.
        ProblemError: the problem is not valid Python.
    """
    if template == NANO and NANO not in (texts or {}):
        text = f"{PROBLEM_TOKEN}{canonical_code(problem.code)}{KERNEL_TOKEN}"
        return Prompt(problem=problem.name, template=template, text=text)
    content = _fill(template, texts, {"problem": problem.code})
    return Prompt(
        problem=problem.name, template=template, messages=(Message(role="user", content=content),)
    )


def render_infilling(
    problem: Problem,
    prefix: str,
    suffix: str,
    *,
    forced: bool,
    template: str = INFILLING,
    texts: Mapping[str, str] | None = None,
) -> Prompt:
    """Render the task to write what lies between `prefix` and `suffix` in a kernel file.

    Args:
        forced: put both into the completion as well, inside a code block, so that decoding fills in what
            is between them. Otherwise the model writes the whole file, as in DICE's first RL stage.
        texts: see `render`.

    Raises:
        UserError: no such template.
    """
    values = {"problem": problem.code, "prefix": prefix, "suffix": suffix}
    content = _fill(template, texts, values)
    return Prompt(
        problem=problem.name,
        template=template,
        messages=(Message(role="user", content=content),),
        forced_prefix=f"```python\n{prefix}" if forced else "",
        forced_suffix=f"{suffix}\n```" if forced else "",
    )


def template_texts(template: str) -> dict[str, str]:
    """The package's text of a template by its name, to travel with a checkpoint trained on it.

    Empty for "nano", which is code.

    Raises:
        UserError: no such template.
    """
    return {} if template == NANO else {template: _text(template, None)}


def _fill(template: str, texts: Mapping[str, str] | None, values: dict[str, str]) -> str:
    text = _text(template, texts)
    wanted = set(_PLACEHOLDER.findall(text))
    if wanted != values.keys():
        raise UserError(
            f"prompt template {template!r} has places for {_names(wanted)}, but what is rendered is "
            f"{_names(values.keys())}; "
            + (
                "give a prefix and a suffix"
                if "prefix" in wanted
                else "choose another template or correct its text"
            )
        )
    # One pass, so that code that looks like a placeholder stays code.
    return _PLACEHOLDER.sub(lambda match: values[match[1]].strip("\n"), text).strip()


def _text(template: str, texts: Mapping[str, str] | None) -> str:
    if texts and template in texts:
        return texts[template]
    if template not in (KERNELBENCH, INFILLING):
        known = ", ".join(sorted({NANO, KERNELBENCH, INFILLING, *(texts or {})}))
        raise UserError(f"no prompt template {template!r}; there is {known}")
    path = resources.files("dice.prompts") / "templates" / f"{template}.txt"
    return path.read_text(encoding="utf-8")


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"


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
