"""Builds one pair: collects what the problem file needs while families write both sides in step.

Sizes are written as placeholders and filled in at the end, once with full and once with small numbers,
so that both problem files and the single kernel file agree in everything else.
"""

import ast
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from dice.data.synth.cuda import HostFunction, module_source
from dice.data.synth.datatext import data_text
from dice.data.synth.naming import DIM_NAMES, INPUT_NAMES, LOCAL_NAMES, random_name
from dice.data.synth.pair import Pair
from dice.data.synth.style import Style, draw_style

NOVEL_NAMES = 0.05
"""How often a name comes from no pool."""


@dataclass(slots=True, eq=False)
class Dim:
    """One size: full and small value as source text, and the constant's name once it has one."""

    kind: str
    full: str
    small: str
    token: str
    name: str | None = None


@dataclass(slots=True)
class ArgSpec:
    name: str
    value: str
    """Source text of the value given to the constructor (may hold size placeholders)."""
    default: str | None
    const: str | None
    """Name of the module-level constant that holds the value, if there is one."""
    dim: Dim | None = None


@dataclass(slots=True)
class InputSpec:
    name: str
    dims: tuple[Dim, ...]
    make: str
    """Expression with {shape} in place of the shape arguments."""


@dataclass(slots=True)
class Builder:
    """State of one pair under construction."""

    rng: random.Random
    style: Style
    schedule: str = "plain"
    cur: str = ""
    """Expression of the current value in the problem's forward."""
    shape: tuple[Dim, ...] = ()
    """Shape of the current value."""
    functions: list[HostFunction] = field(default_factory=list)
    result: str = ""
    """Python expression of the current value in the candidate's forward."""
    ops: list[str] = field(default_factory=list)
    init_lines: list[str] = field(default_factory=list)
    forward_lines: list[str] = field(default_factory=list)
    new_lines: list[str] = field(default_factory=list)
    methods: list[str] = field(default_factory=list)
    """Further methods of the problem's class, as text."""
    input_lines: list[str] = field(default_factory=list)
    """Statements that get_inputs starts with."""
    bare: bool = False
    """Whether the core stands alone: no elementwise operators are drawn around it."""
    views: bool = False
    """Whether the current value may share memory with an input: then nothing is written in place."""
    _chain: list[str] | None = None
    """Constructors of the `nn.Sequential` being written, if one is."""
    _chain_attr: str = ""
    dims: list[Dim] = field(default_factory=list)
    args: list[ArgSpec] = field(default_factory=list)
    inputs: list[InputSpec] = field(default_factory=list)
    _attrs: set[str] = field(default_factory=set)
    global_names: set[str] = field(default_factory=set)
    _locals: set[str] = field(default_factory=set)
    kept: set[str] = field(default_factory=set)
    _imports: set[str] = field(default_factory=set)
    _nesting: int = 0
    _flow: str = ""

    # ---- sizes -------------------------------------------------------------------------------------

    def dim(self, kind: str, full: int | str, small: int | str) -> Dim:
        """A new size. `full` may be an expression such as "1024 * 2"."""
        token = f"SIZE{len(self.dims)}_"
        dim = Dim(kind=kind, full=str(full), small=str(small), token=token)
        self.dims.append(dim)
        return dim

    def const_name(self, dim: Dim) -> str:
        """Name of the constant holding this size."""
        if dim.name is None:
            dim.name = self.free_name(
                DIM_NAMES.get(dim.kind, DIM_NAMES["features"]), self.global_names, upper=True
            )
        return dim.name

    def ctor_dim(self, dim: Dim, pool: Sequence[str] | None = None) -> str:
        """Expression of this size inside `Model.__init__`: a constructor argument."""
        for arg in self.args:
            if arg.dim is dim:
                return arg.name
        names = list(pool) if pool else list(DIM_NAMES.get(dim.kind, DIM_NAMES["features"]))
        if self.style.layout in ("const", "tuple") and self.rng.random() < 0.7:
            names = [self.const_name(dim).lower()] * 3 + names[:1]
        name = self.free_name(names, {a.name for a in self.args}, upper=False)
        self.args.append(ArgSpec(name=name, value=dim.token, default=None, const=None, dim=dim))
        return name

    def ctor_expr(self, names: Sequence[str], value: str, literal_chance: float = 0.3) -> str:
        """A constant inside `Model.__init__`: a literal, or a constructor argument holding `value`."""
        if self.style.hyper == "literal" or self.rng.random() < literal_chance:
            return value
        return self._hyper_arg(names, value)

    def ctor_value(self, names: Sequence[str], value: str) -> str:
        """A constructor argument holding `value` (source text, may hold size placeholders)."""
        for arg in self.args:
            if arg.value == value and arg.dim is None and arg.name in names:
                return arg.name
        name = self.free_name(names, {a.name for a in self.args}, upper=False)
        const = None
        if self.rng.random() < 0.8:
            const = self.free_name([name], self.global_names, upper=True)
        self.args.append(ArgSpec(name=name, value=value, default=None, const=const))
        return name

    def ctor_arg(self, names: Sequence[str], value: str, default: str | None = None) -> str:
        """A constructor argument holding `value`, with a default that may differ from it."""
        name = self.free_name(names, {a.name for a in self.args}, upper=False)
        const = None
        if default != value and self.rng.random() < 0.8:
            const = self.free_name([name], self.global_names, upper=True)
        self.args.append(ArgSpec(name=name, value=value, default=default, const=const))
        return name

    def _hyper_arg(self, names: Sequence[str], value: str) -> str:
        name = self.free_name(names, {a.name for a in self.args}, upper=False)
        default = self.style.hyper == "default" or self.rng.random() < 0.2
        const = None
        if not default and self.rng.random() < 0.65:
            wanted = [name.upper() if self.style.upper else name]
            const = self.free_name(wanted, self.global_names, upper=True)
        self.args.append(
            ArgSpec(name=name, value=value, default=value if default else None, const=const)
        )
        return name

    # ---- attributes --------------------------------------------------------------------------------

    def hyper(self, names: Sequence[str], value: str, *, literal: bool = True) -> str:
        """A constant used in forward: its expression there, literal or attribute, valid on both sides."""
        mode = self.style.hyper
        if mode == "mixed":
            mode = self.rng.choice(["arg", "default", "attr", "literal"])
        if mode == "literal" and literal:
            return value
        if mode in ("attr", "literal"):
            attr = self.free_name(names, self._attrs, upper=False)
            self.init_lines.append(f"self.{attr} = {value}")
            return f"self.{attr}"
        arg = self._hyper_arg(names, value)
        attr = arg if arg not in self._attrs else self.free_name(names, self._attrs, upper=False)
        self._attrs.add(attr)
        self.init_lines.append(f"self.{attr} = {arg}")
        return f"self.{attr}"

    def attribute(self, names: Sequence[str], value: str) -> str:
        """An attribute computed in `__init__`: `self.<name> = <value>`."""
        attr = self.free_name(names, self._attrs, upper=False)
        self.init_lines.append(f"self.{attr} = {value}")
        return f"self.{attr}"

    def module(self, names: Sequence[str], ctor: str) -> str:
        """A submodule attribute: `self.<name> = <ctor>`; `nn.` is spelled in the author's way."""
        if self._chain is not None:
            self._chain.append(self.spell(ctor))
            return f"self.{self._chain_attr}[{len(self._chain) - 1}]"
        attr = self.free_name(names, self._attrs, upper=False)
        ctor = (
            ctor.replace("nn.", "torch.nn.", 1)
            if self.rng.random() < 0.04 and ctor.startswith("nn.")
            else self.spell(ctor)
        )
        self.init_lines.append(f"self.{attr} = {ctor}")
        return f"self.{attr}"

    def begin_sequential(self) -> None:
        """From here on modules go into one `nn.Sequential`, and `apply` writes nothing."""
        self._chain = []
        self._chain_attr = self.free_name(
            ("net", "layers", "model", "seq", "block", "sequential", "layer", "ops"),
            self._attrs,
            upper=False,
        )

    @property
    def in_sequential(self) -> bool:
        return self._chain is not None

    def end_sequential(self) -> None:
        """Write the `nn.Sequential` and its application to the current value."""
        assert self._chain is not None
        self.init_lines.append(
            f"self.{self._chain_attr} = {self.style.nn}.Sequential({', '.join(self._chain)})"
        )
        self._chain = None
        self.apply(f"self.{self._chain_attr}({{x}})", "out")

    def parameter(self, names: Sequence[str], shape: str, init: str | None = None) -> str:
        """An `nn.Parameter` of a shape expression valid in `__init__`. `init` holds {shape}."""
        attr = self.free_name(names, self._attrs, upper=False)
        init = init or self.rng.choice(
            [
                "torch.randn({shape})",
                "torch.randn({shape})",
                "torch.randn({shape}) * 0.02",
                "torch.randn({shape}) * 0.1",
                "torch.rand({shape})",
                "torch.ones({shape})",
                "torch.zeros({shape})",
                "torch.empty({shape}).normal_()",
            ]
        )
        value = init.replace("{shape}", shape)
        if self.rng.random() < 0.05:
            self.init_lines.append(f"self.register_buffer('{attr}', {value})")
        else:
            self.init_lines.append(f"self.{attr} = {self.style.nn}.Parameter({value})")
        return f"self.{attr}"

    # ---- inputs ------------------------------------------------------------------------------------

    def input(
        self, names: str | Sequence[str], dims: Sequence[Dim], make: str | None = None
    ) -> str:
        """A forward argument. `make` builds it in get_inputs, with {shape} for its sizes."""
        pool = INPUT_NAMES[names] if isinstance(names, str) else names
        name = self.free_name(pool, self._locals, upper=False)
        if make is None:
            make = f"torch.{self.style.generator}({{shape}})"
        self.inputs.append(InputSpec(name=name, dims=tuple(dims), make=make))
        return name

    def start(self, name: str, dims: Sequence[Dim]) -> None:
        """Make a forward argument the current value on both sides."""
        self.cur, self.shape, self.result = name, tuple(dims), f"{name}.contiguous()"
        self._nesting = 0

    def keep(self, name: str) -> None:
        """Never reassign this local: it is read again later."""
        self.kept.add(name)

    # ---- forward of the problem --------------------------------------------------------------------

    def spell(self, text: str) -> str:
        """Write `F.` and `nn.` as the author does."""
        text = re.sub(r"(?<![\w.])F\.", self.style.functional + ".", text)
        return re.sub(r"(?<![\w.])nn\.", self.style.nn + ".", text)

    def apply(self, template: str, hint: str | None = None, **parts: str) -> None:
        """Apply an expression template to the current value.

        {x} is the value, {a} the value as an operand (parenthesised where needed), {n} the value as a
        name (it occurs more than once). Other fields come from `parts`. `hint` names the result.
        """
        if self._chain is not None:
            return
        if self._apply_in_place(template, parts):
            return
        if "{n}" in template:
            self.as_name()
        cur = self.cur
        atom = cur if is_atom(cur) else f"({cur})"
        text = self.spell(template)
        for key, value in parts.items():
            text = text.replace("{" + key + "}", value)
        self.cur = text.replace("{x}", cur).replace("{a}", atom).replace("{n}", cur)
        self._nesting += 1
        flow = self.style.flow
        if flow == "mixed":
            flow = self.rng.choice(["nest", "reassign", "named"])
        if flow == "nest" and self._nesting < 4 and len(self.cur) < 90:
            self._flow = hint or ""
            return
        self.assign(hint, reassign=flow == "reassign")

    def _apply_in_place(self, template: str, parts: dict[str, str]) -> bool:
        """Sometimes write `h *= s` for a local that nothing else holds."""
        match = re.fullmatch(r"\{a\} ([-+*/]) \{(\w+)\}", template)
        if match is None or self.views or self.rng.random() > 0.12:
            return False
        if not self.cur.isidentifier() or self.cur in self.kept or self.is_input(self.cur):
            return False
        self.forward_lines.append(f"{self.cur} {match[1]}= {parts[match[2]]}")
        return True

    def is_input(self, name: str) -> bool:
        """Whether a local is still a forward argument, never assigned."""
        return any(i.name == name for i in self.inputs) and not any(
            line.startswith(f"{name} = ") for line in self.forward_lines
        )

    def assign(self, hint: str | None = None, *, reassign: bool = False) -> str:
        """Give the current value a name, and return it."""
        first = self.inputs[0].name if self.inputs else "x"
        if reassign and first not in self.kept:
            name = first
        else:
            pool = [hint] if hint and self.rng.random() < 0.5 else list(LOCAL_NAMES)
            reusable = [
                n
                for n in LOCAL_NAMES
                if n in self._locals
                and n not in self.kept
                and all(i.name != n for i in self.inputs)
            ]
            if reusable and self.rng.random() < 0.4:
                name = reusable[0]
            else:
                name = self.free_name(pool, self._locals, upper=False)
        if self.cur != name:
            self.forward_lines.append(f"{name} = {self.cur}")
        self.cur = name
        self._nesting = 0
        return name

    def reshape(self, problem: str, candidate: str, shape: Sequence[Dim]) -> None:
        """A change of shape that moves no data: a template for the problem, a method call for the candidate."""
        self.views = True
        self.apply(problem, "flat")
        self.result += candidate
        self.shape = tuple(shape)

    def as_name(self) -> str:
        """The current value as a bare name, assigning it first where it is an expression."""
        return (
            self.cur
            if self.cur.isidentifier()
            else self.assign(reassign=self.style.flow == "reassign")
        )

    def local(self, names: Sequence[str]) -> str:
        """A fresh local name for the problem's forward."""
        return self.free_name(names, self._locals, upper=False)

    def line(self, text: str) -> None:
        """A statement of the problem's forward."""
        self.forward_lines.append(self.spell(text))

    # ---- candidate ---------------------------------------------------------------------------------

    def call(self, function: HostFunction) -> None:
        """Add a host function, unless it is there already, and call it: its result becomes the candidate's value."""
        taken = {f.name for f in self.functions}
        again = any(f.definition() == function.definition() for f in self.functions)
        if function.name in taken and not again:
            k = 2
            while f"{function.name}_{k}" in taken:
                k += 1
            function.fixed_name = f"{function.name}_{k}"
        if not again:
            self.functions.append(function)
        self.ops += [op for op in function.ops if op]
        if self.result.startswith("ext."):
            self.new_lines.append(f"out = {self.result}")
            self.result = "out"
        args = ["out" if a == "RESULT" else a for a in function.call_args()]
        self.result = f"ext.{function.name}_cuda({', '.join(args)})"

    def candidate_import(self, line: str) -> None:
        """A further import statement of the candidate file."""
        self._imports.add(line)

    def lead(self) -> str:
        """The candidate's expression of the current value, as the leading argument of a call."""
        return "RESULT" if self.result.startswith("ext.") else self.result

    # ---- rendering ---------------------------------------------------------------------------------

    def finish(self, family: str) -> Pair:
        """Render both files."""
        self.forward_lines.append(f"return {self.cur}")
        self.new_lines.append(f"return {self.result}")
        self._add_unused()
        problem = self._problem_text()
        kernel = self._kernel_text()
        return Pair(
            family=family,
            schedule=self.schedule,
            ops=tuple(self.ops),
            problem_code=self._fill(problem, small=False),
            small_code=self._fill(problem, small=True),
            kernel_code=kernel,
        )

    def _fill(self, text: str, *, small: bool) -> str:
        table = {d.token: d.small if small else d.full for d in self.dims}
        return re.sub(r"SIZE\d+_", lambda m: table[m.group(0)], text)

    def _add_unused(self) -> None:
        if self.rng.random() < 0.13:
            dims = [
                d
                for d in (self.inputs[0].dims if self.inputs else ())
                if all(a.dim is not d for a in self.args)
            ]
            if dims:
                arg = self.ctor_dim(self.rng.choice(dims))
                if self.rng.random() < 0.5 and arg not in self._attrs:
                    self._attrs.add(arg)
                    self.init_lines.insert(0, f"self.{arg} = {arg}")

    def ordered_args(self) -> list[ArgSpec]:
        return [a for a in self.args if a.default is None] + [
            a for a in self.args if a.default is not None
        ]

    def init_text(self, super_call: str) -> str:
        """`__init__` of the model, or "" where the author leaves it out."""
        if not self.args and not self.init_lines and self.rng_no_init:
            return ""
        params = ["self"] + [
            a.name + (f"={a.default}" if a.default is not None else "") for a in self.ordered_args()
        ]
        body = [super_call, *self.init_lines]
        return (
            f"    def __init__({', '.join(params)}):\n"
            + "".join(f"        {line}\n" for line in body)
            + "\n"
        )

    @property
    def rng_no_init(self) -> bool:
        """Whether an empty constructor is left out (fixed for one pair)."""
        return self.style.super_call == "super().__init__()" and self.style.flow == "named"

    def _import_lines(self, body: str) -> list[str]:
        lines = list(self.style.imports)
        if re.search(r"(?<![\w.])F\.", body) or (self.style.functional == "F" and self._imports_f):
            lines.append("import torch.nn.functional as F")
        if re.search(r"(?<![\w.])math\.", body):
            lines.insert(0 if self.style.upper else len(lines), "import math")
        return lines

    @property
    def _imports_f(self) -> bool:
        return self.style.layout in ("const", "shape") and self.style.nn == "nn"

    def _problem_text(self) -> str:
        names = ", ".join(["self", *(i.name for i in self.inputs)])
        forward = f"    def forward({names}):\n" + "".join(
            f"        {line}\n" for line in self.forward_lines
        )
        init = self.init_text(self.style.super_call)
        body = init + "".join(method + "\n" for method in self.methods) + forward
        cls = f"class Model({self.style.base}):\n{body}"
        data = data_text(self)
        inputs, consts, init_inputs = data.inputs, data.consts, data.init_inputs
        if self.rng.random() < 0.06:
            inputs, init_inputs = init_inputs, inputs
        imports = "\n".join(self._import_lines(body))
        const_text = "\n".join(consts)
        order = (
            [imports, const_text, cls] if self.style.consts_first else [imports, cls, const_text]
        )
        return "\n\n".join(part for part in [*order, inputs, init_inputs] if part) + "\n"

    def _kernel_text(self) -> str:
        names = ", ".join(["self", *(i.name for i in self.inputs)])
        init = self.init_text("super().__init__()")
        forward = f"    def forward({names}):\n" + "".join(
            f"        {line}\n" for line in self.new_lines
        )
        problem_forward = "".join(self.forward_lines)
        imports = "\n".join(
            [
                *self._import_lines(init + problem_forward),
                *sorted(self._imports),
                "from torch.utils.cpp_extension import load_inline",
            ]
        )
        init = self._canonical_init(init)
        return f"{imports}\n\n{module_source(self.functions)}\nclass ModelNew({self.style.base}):\n\n{init}{forward}"

    @staticmethod
    def _canonical_init(init: str) -> str:
        if not init:
            return ""
        text = ast.unparse(ast.parse("class _:\n" + init))
        return text.split("\n", 1)[1].lstrip("\n") + "\n\n"

    def free_name(self, names: Sequence[str], taken: set[str], *, upper: bool) -> str:
        """A name from the pool that is not taken yet; it is marked as taken."""
        if len(names) > 1 and self.rng.random() < NOVEL_NAMES:
            names = [random_name(self.rng)]
        pool = [n.upper() if upper and self.style.upper else n for n in names]
        name = self.rng.choice(pool)
        free = [n for n in pool if n not in taken]
        if name in taken:
            name = free[0] if free else name
        k = 2
        base = name
        while name in taken:
            name = f"{base}{k}" if not base[-1:].isdigit() else f"{base}_{k}"
            k += 1
        taken.add(name)
        return name


def is_atom(expression: str) -> bool:
    """Whether an expression needs no parentheses as an operand."""
    body = ast.parse(expression, mode="eval").body
    return isinstance(body, ast.Name | ast.Call | ast.Attribute | ast.Subscript | ast.Constant)


def new_builder(rng: random.Random) -> Builder:
    """A builder with a freshly drawn author."""
    return Builder(rng=rng, style=draw_style(rng))
