"""Is this output right? One pure function (DESIGN section 4.3).

c is the candidate's output, p what PyTorch computes in the problem's own precision, o the same in
float64. A float element passes when |c - o| <= r (|o| + rms(o)) + k max|p - o|: a relative error, an
absolute error in proportion to the tensor's own scale, and the error that PyTorch itself makes. Where p
or o is infinite, c must be the same infinity. NaN never passes. Integers and booleans are exact (an index
may equal either p's or o's, because the two may break a near tie differently).
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
    c64, p64 = c.double(), p.double()
    o64 = p64 if o is None else o.double()
    nan = torch.isnan(c64)
    if nan.any():
        share = nan.double().mean().item()
        message = f"is NaN at {_first(nan)} ({_percent(share)} of elements)"
        return _fail("nan", where, message, mismatched=share)
    infinite = torch.isinf(p64) | torch.isinf(o64)
    expected = torch.where(torch.isinf(p64), p64, o64)
    bad = torch.where(infinite, (c64 != expected) & (c64 != p64), torch.isinf(c64))
    if bad.any():
        index, share = _first(bad), bad.double().mean().item()
        message = f"is {c64[index].item()} at {index}, expected {p64[index].item():.6g}"
        return _fail("infinity", where, f"{message} ({_percent(share)})", mismatched=share)
    finite = ~infinite
    if not finite.any():
        return Comparison(ok=True, where=where)
    c64, p64, o64 = c64[finite], p64[finite], o64[finite]
    rms = o64.square().mean().sqrt()
    allowed = relative * (o64.abs() + rms) + policy.slack * (p64 - o64).abs().max()
    error = (c64 - o64).abs()
    excess = error - allowed
    worst = int(torch.argmax(excess))
    share = (excess > 0).double().mean().item()
    record: dict[str, float] = {
        "max_error": error[worst].item(),
        "tolerance": allowed[worst].item(),
        "mismatched": share,
    }
    if share == 0:
        return Comparison(
            ok=True, where=where, max_error=record["max_error"], tolerance=record["tolerance"]
        )
    position = torch.nonzero(finite)[worst].tolist()
    message = (
        f"differs at {tuple(position)}: {c64[worst].item():.6g}, expected {o64[worst].item():.6g}"
        f" within {allowed[worst].item():.2g} ({_percent(share)} of elements off)"
    )
    return _fail("values", where, message, **record)


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
