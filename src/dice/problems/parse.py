"""A Python file under KernelBench's contract -> `Problem`, by reading its syntax tree only.

Guarantees that the file parses and defines `Model`, `get_inputs` and `get_init_inputs` at module level.
Whether they *work* is found out by the judge, in a sandbox.
"""

import ast
from pathlib import Path

from dice.errors import ProblemError
from dice.types import Problem

CONTRACT = (
    "A problem file defines `class Model(nn.Module)`, `get_inputs()` (the list of arguments of "
    "`forward`) and `get_init_inputs()` (the list of arguments of `Model`)."
)


def load_problem(path: str | Path) -> Problem:
    """Read a problem file.

    Raises:
        ProblemError: the file is missing, is not text, or breaks the contract.
    """
    path = Path(path)
    try:
        code = path.read_text(encoding="utf-8")
    except FileNotFoundError as e:
        raise ProblemError(f"{path}: no such file") from e
    except IsADirectoryError as e:
        raise ProblemError(f"{path} is a directory; name one problem file") from e
    except UnicodeDecodeError as e:
        raise ProblemError(f"{path} is not UTF-8 text") from e
    except OSError as e:
        raise ProblemError(f"{path} cannot be read: {e.strerror}") from e
    return parse_problem(code, name=path.stem, path=str(path))


def parse_problem(
    code: str,
    *,
    name: str,
    path: str | None = None,
    source: str = "file",
    level: int | None = None,
) -> Problem:
    """Check the contract on the syntax tree and wrap the code.

    Raises:
        ProblemError: a syntax error, or a name of the contract is missing.
    """
    where = path or name
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError) as e:
        line = f":{e.lineno}" if isinstance(e, SyntaxError) and e.lineno else ""
        raise ProblemError(f"{where}{line}: not valid Python: {e}") from e
    bound = _module_names(tree)
    if "Model" not in bound:
        hint = " (it defines ModelNew: is this a candidate?)" if "ModelNew" in bound else ""
        raise ProblemError(f"{where} has no class `Model`{hint}. {CONTRACT}")
    for function in ("get_inputs", "get_init_inputs"):
        if function not in bound:
            raise ProblemError(f"{where} has no function `{function}`. {CONTRACT}")
    return Problem(name=name, code=code, source=source, path=path, level=level)


def _module_names(tree: ast.Module) -> set[str]:
    """Names bound by classes, functions, assignments and imports at module level."""
    names: set[str] = set()
    for node in tree.body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                names.add(name)
            case ast.Assign(targets=targets):
                names.update(t.id for t in targets if isinstance(t, ast.Name))
            case ast.ImportFrom(names=aliases) | ast.Import(names=aliases):
                names.update(a.asname or a.name for a in aliases)
    return names
