"""Is this output right? One pure function (DESIGN section 4.3).

c is the candidate's output, p what PyTorch computes in the problem's own precision, o the same in
float64. A float element passes when |c - o| <= r (|o| + rms(o)) + k max|p - o|: a relative error, an
absolute error in proportion to the tensor's own scale, and the error that PyTorch itself makes. Where p
or o is infinite, c must be the same infinity. NaN never passes. Integers and booleans are exact (an index
may equal either p's or o's, because the two may break a near tie differently); a boolean whose byte is
neither 0 nor 1 was never written and is not true.
"""

from dataclasses import dataclass

import torch

from dice.verify.policy import Policy
from dice.verify.trees import Foreign, Tree


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """`ok`, or what is wrong and where. Errors are those of the worst element."""

    ok: bool
    reason: str = ""
    """"structure", "type", "dtype", "shape", "nan", "infinity", "values"; empty when ok."""
    message: str = ""
    where: str = "output"
    max_error: float = 0.0
    tolerance: float = 0.0
    mismatched: float = 0.0
    """Share of elements outside the tolerance."""


def compare(candidate: Tree, reference: Tree, oracle: Tree, policy: Policy) -> Comparison:
    """Compare whole outputs: nested tuples, lists and dicts with tensors and numbers.

    `oracle` is `reference` computed in float64, or None where that was impossible.
    """
    return _compare(candidate, reference, oracle, policy, "output")


def _compare(c: Tree, p: Tree, o: Tree, policy: Policy, where: str) -> Comparison:
    if isinstance(c, Foreign):
        return _fail("type", where, f"is a {c.type_name}, not exactly a torch.Tensor")
    if isinstance(p, torch.Tensor):
        if not isinstance(c, torch.Tensor) or type(c) is not torch.Tensor:
            return _fail("type", where, f"is a {type(c).__name__}, expected a tensor")
        return _compare_tensors(c, p, o if isinstance(o, torch.Tensor) else None, policy, where)
    if isinstance(p, list | tuple):
        if not isinstance(c, list | tuple) or len(c) != len(p):
            return _fail("structure", where, f"is {_name(c)}, expected {_name(p)}")
        oracles = o if isinstance(o, list | tuple) and len(o) == len(p) else [None] * len(p)
        parts = [
            _compare(*triple, policy, f"{where}[{index}]")
            for index, triple in enumerate(zip(c, p, oracles, strict=True))
        ]
        return _worst(parts, where)
    if isinstance(p, dict):
        if not isinstance(c, dict) or set(c) != set(p):
            return _fail("structure", where, f"is {_name(c)}, expected {_name(p)}")
        wide = o if isinstance(o, dict) else {}
        parts = [_compare(c[k], p[k], wide.get(k), policy, f"{where}[{k!r}]") for k in p]
        return _worst(parts, where)
    if isinstance(p, float) and isinstance(c, float):
        c, p = (torch.tensor(number, dtype=torch.float64) for number in (c, p))
        return _compare_tensors(c, p, None, policy, where)
    if type(c) is not type(p) or c != p:
        return _fail("structure", where, f"is {c!r}, expected {p!r}")
    return Comparison(ok=True, where=where)


def _compare_tensors(
    c: torch.Tensor, p: torch.Tensor, o: torch.Tensor | None, policy: Policy, where: str
) -> Comparison:
    if c.dtype != p.dtype:
        return _fail("dtype", where, f"is {c.dtype}, expected {p.dtype}")
    if c.shape != p.shape:
        return _fail("shape", where, f"has shape {tuple(c.shape)}, expected {tuple(p.shape)}")
    if c.device != p.device:
        return _fail("type", where, f"is on {c.device}, expected {p.device}")
    if o is not None and o.shape != p.shape:
        o = None
    if c.numel() == 0:
        return Comparison(ok=True, where=where)
    if c.is_complex():
        halves = [torch.view_as_real(x) for x in (c, p)]
        whole = None if o is None else torch.view_as_real(o.to(torch.complex128))
        return _compare_tensors(halves[0], halves[1], whole, policy, where)
    if not c.is_floating_point():
        return _compare_exact(c, p, o, where)
    return _compare_floats(c, p, o, policy, where)


def _compare_exact(
    c: torch.Tensor, p: torch.Tensor, o: torch.Tensor | None, where: str
) -> Comparison:
    bad = c != p
    if o is not None and o.dtype == p.dtype:
        bad &= c != o
    if c.dtype == torch.bool:
        unwritten = c.contiguous().view(torch.uint8) > 1
        if unwritten.any():
            share = unwritten.double().mean().item()
            message = f"is neither true nor false at {_first(unwritten)}, as if never written"
            return _fail("values", where, f"{message} ({_percent(share)})", mismatched=share)
    share = bad.double().mean().item()
    if share == 0:
        return Comparison(ok=True, where=where)
    index = _first(bad)
    message = f"differs at {index}: {c[index].item()}, expected {p[index].item()}"
    return _fail("values", where, f"{message} ({_percent(share)} of elements)", mismatched=share)


def _compare_floats(
    c: torch.Tensor, p: torch.Tensor, o: torch.Tensor | None, policy: Policy, where: str
) -> Comparison:
    half = p.dtype in (torch.float16, torch.bfloat16) or policy.precision != "float32"
    relative = policy.relative_half if half else policy.relative
    parts = _parts(c, p, o)
    scale = _Scale.of(parts)
    worst = _Worst()
    for part in parts:
        fault = worst.add(part, scale, relative, policy.slack)
        if fault is not None:
            return fault.at(where, c)
    return worst.result(where, c)


_PART = 1 << 24
"""Elements compared at a time: an output of many gigabytes needs little memory besides itself."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A stretch of the flattened tensors; `o` is `p` where there is no oracle."""

    offset: int
    c: torch.Tensor
    p: torch.Tensor
    o: torch.Tensor

    def wide(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """c, p, o in float64, and where p and o are finite."""
        c, p, o = self.c.double(), self.p.double(), self.o.double()
        return c, p, o, ~(torch.isinf(p) | torch.isinf(o))


def _parts(c: torch.Tensor, p: torch.Tensor, o: torch.Tensor | None) -> list[_Part]:
    flat = [torch.split(x.reshape(-1), _PART) for x in (c, p, p if o is None else o)]
    return [_Part(index * _PART, *three) for index, three in enumerate(zip(*flat, strict=True))]


@dataclass(frozen=True, slots=True)
class _Scale:
    """The size of the whole tensor: rms(o), and PyTorch's own worst error."""

    rms: float
    error: float

    @classmethod
    def of(cls, parts: list[_Part]) -> "_Scale":
        squares, count, error = 0.0, 0, 0.0
        for part in parts:
            _, p, o, finite = part.wide()
            squares += torch.where(finite, o, 0.0).square().sum().item()
            count += int(finite.sum())
            error = max(error, torch.where(finite, (p - o).abs(), 0.0).max().item())
        return cls((squares / count) ** 0.5 if count else 0.0, error)


@dataclass(frozen=True, slots=True)
class _Fault:
    """A NaN or a wrong infinity at one flat position."""

    reason: str
    index: int
    text: str
    share: float

    def at(self, where: str, c: torch.Tensor) -> Comparison:
        message = self.text.replace("@", str(_position(self.index, c)))
        return _fail(self.reason, where, message, mismatched=self.share)


@dataclass(slots=True)
class _Worst:
    """The element farthest outside its tolerance, over all parts."""

    excess: float = float("-inf")
    error: float = 0.0
    allowed: float = 0.0
    index: int = 0
    got: float = 0.0
    expected: float = 0.0
    off: int = 0

    def add(self, part: _Part, scale: _Scale, relative: float, slack: float) -> _Fault | None:
        c, p, o, finite = part.wide()
        nan = torch.isnan(c)
        if nan.any():
            share = nan.double().mean().item()
            text = f"is NaN at @ ({_percent(share)} of elements)"
            return _Fault("nan", part.offset + _index(nan), text, share)
        expected = torch.where(torch.isinf(p), p, o)
        bad = torch.where(finite, torch.isinf(c), (c != expected) & (c != p))
        if bad.any():
            index, share = _index(bad), bad.double().mean().item()
            text = f"is {c[index].item()} at @, expected {p[index].item():.6g} ({_percent(share)})"
            return _Fault("infinity", part.offset + index, text, share)
        if not finite.any():
            return None
        allowed = relative * (o.abs() + scale.rms) + slack * scale.error
        error = (c - o).abs()
        excess = torch.where(finite, error - allowed, float("-inf"))
        worst = int(torch.argmax(excess))
        self.off += int((excess > 0).sum())
        if excess[worst].item() > self.excess:
            self.excess, self.index = excess[worst].item(), part.offset + worst
            self.error, self.allowed = error[worst].item(), allowed[worst].item()
            self.got, self.expected = c[worst].item(), o[worst].item()
        return None

    def result(self, where: str, c: torch.Tensor) -> Comparison:
        if not self.off:
            return Comparison(ok=True, where=where, max_error=self.error, tolerance=self.allowed)
        share = self.off / c.numel()
        message = (
            f"differs at {_position(self.index, c)}: {self.got:.6g}, expected {self.expected:.6g}"
            f" within {self.allowed:.2g} ({_percent(share)} of elements off)"
        )
        return _fail(
            "values", where, message, max_error=self.error, tolerance=self.allowed, mismatched=share
        )


def _index(mask: torch.Tensor) -> int:
    return int(torch.nonzero(mask)[0])


def _position(flat: int, tensor: torch.Tensor) -> tuple[int, ...]:
    position = []
    for size in reversed(tensor.shape):
        position.append(flat % size)
        flat //= size
    return tuple(reversed(position))


def _fail(reason: str, where: str, message: str, **record: float) -> Comparison:
    return Comparison(ok=False, reason=reason, where=where, message=f"{where} {message}", **record)


def _worst(parts: list[Comparison], where: str) -> Comparison:
    for part in parts:
        if not part.ok:
            return part
    if not parts:
        return Comparison(ok=True, where=where)
    return max(parts, key=lambda part: part.max_error)


def _name(tree: Tree) -> str:
    if isinstance(tree, list | tuple):
        return f"a {type(tree).__name__} of {len(tree)}"
    if isinstance(tree, dict):
        return f"a dict with {sorted(tree)}"
    return f"a {type(tree).__name__}"


def _first(mask: torch.Tensor) -> tuple[int, ...]:
    return tuple(int(i) for i in torch.nonzero(mask)[0]) if mask.dim() else ()


def _percent(share: float) -> str:
    return f"{100 * share:.3g}%"
