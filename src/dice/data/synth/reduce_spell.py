"""How people spell reductions."""

from dice.data.synth.builder import Builder

KINDS = {
    "sum": 14.0,
    "mean": 14.0,
    "max": 13.0,
    "min": 11.0,
    "argmax": 7.0,
    "argmin": 7.0,
    "prod": 4.0,
    "var": 4.0,
    "std": 4.0,
    "logsumexp": 7.0,
    "norm2": 5.0,
    "norm1": 3.0,
    "norminf": 1.0,
}
HINTS = {
    "sum": "total",
    "mean": "mean",
    "max": "max_values",
    "min": "min_values",
    "argmax": "indices",
    "argmin": "indices",
    "var": "var",
    "std": "std",
    "logsumexp": "lse",
    "norm2": "norm",
    "norm1": "norm",
}


# fmt: off
def spell_reduction(b: Builder, kind: str, dim: str | None, keep: bool) -> None:
    """Write the reduction into the problem's forward."""
    rng = b.rng
    k = ", keepdim=True" if keep else ""
    one = dim is not None and not dim.startswith(("(", "["))
    plain = {"sum": "sum", "mean": "mean", "prod": "prod", "var": "var", "std": "std", "argmax": "argmax", "argmin": "argmin", "max": "max", "min": "min"}
    if dim is None:
        forms = {
            "norm2": ["torch.norm({x})", "{a}.norm()", "torch.norm({x}, p='fro')", "torch.norm({x}, p=2)", "torch.linalg.norm({x})", "torch.sqrt(torch.sum({a} ** 2))"],
            "norm1": ["torch.norm({x}, p=1)", "{a}.norm(p=1)"],
            "logsumexp": ["torch.logsumexp({x}.flatten(), dim=0)", "torch.log(torch.sum(torch.exp({x})))"],
        }.get(kind) or [f"torch.{plain[kind]}({{x}})", f"{{a}}.{plain[kind]}()"]
        b.apply(rng.choice(forms), HINTS.get(kind))
        return
    n = plain.get(kind, kind)
    d = "{d}"
    if kind in ("sum", "mean"):
        forms = [f"torch.{n}({{x}}, dim={d}{k})", f"torch.{n}({{x}}, dim={d}{k})", f"{{a}}.{n}(dim={d}{k})", f"{{a}}.{n}(dim={d}{k})", f"torch.{n}({{x}}, {d}{k})", f"{{a}}.{n}({d}{k})", f"torch.{n}({{x}}, axis={d}{k})"]
    elif kind in ("max", "min"):
        if not one:
            forms = [f"torch.a{n}({{x}}, dim={d}{k})", f"{{a}}.a{n}(dim={d}{k})"]
        elif rng.random() < 0.3:
            values = b.local(["values", "max_values" if n == "max" else "min_values", "vals", "out", "result", "m", "best", "v"])
            other = rng.choice(["_", "_", "_", "indices", "idx", "_indices"])
            form = rng.choice([f"torch.{n}({{x}}, dim={d}{k})", f"{{a}}.{n}(dim={d}{k})", f"{{a}}.{n}({d}{k})", f"torch.{n}({{x}}, {d}{k})"])
            b.apply(form, d=dim)
            call = b.cur
            if call.isidentifier():
                call = b.forward_lines.pop().split(" = ", 1)[1]
            b.line(f"{values}, {other} = {call}")
            b.cur = values
            return
        else:
            forms = [f"torch.{n}({{x}}, dim={d}{k})[0]", f"torch.{n}({{x}}, dim={d}{k})[0]", f"torch.{n}({{x}}, dim={d}{k}).values", f"{{a}}.{n}(dim={d}{k})[0]", f"{{a}}.{n}(dim={d}{k}).values", f"torch.a{n}({{x}}, dim={d}{k})", f"{{a}}.a{n}(dim={d}{k})", f"{{a}}.{n}({d}{k})[0]", f"torch.{n}({{x}}, {d}{k})[0]", f"torch.{n}({{x}}, {d}{k}).values"]
    elif kind in ("argmax", "argmin", "prod"):
        forms = [f"torch.{n}({{x}}, dim={d}{k})", f"torch.{n}({{x}}, dim={d}{k})", f"{{a}}.{n}(dim={d}{k})", f"{{a}}.{n}({d}{k})", f"torch.{n}({{x}}, {d}{k})"]
        if kind != "prod":
            m = n[3:]
            forms += [f"torch.{m}({{x}}, dim={d}{k})[1]", f"{{a}}.{m}(dim={d}{k})[1]", f"torch.{m}({{x}}, dim={d}{k}).indices"]
    elif kind in ("var", "std"):
        forms = [f"torch.{n}({{x}}, dim={d}{k})", f"{{a}}.{n}(dim={d}{k})", f"torch.{n}({{x}}, dim={d}, unbiased=True{k})"]
    elif kind in ("var0", "std0"):
        n = kind[:-1]
        forms = [f"torch.{n}({{x}}, dim={d}, unbiased=False{k})", f"{{a}}.{n}(dim={d}, unbiased=False{k})", f"torch.{n}({{x}}, dim={d}, correction=0{k})", f"{{a}}.{n}({d}, unbiased=False{k})"]
    elif kind == "logsumexp":
        forms = [f"torch.logsumexp({{x}}, dim={d}{k})", f"torch.logsumexp({{x}}, dim={d}{k})", f"{{a}}.logsumexp(dim={d}{k})", f"torch.logsumexp({{x}}, {d}{k})", f"torch.log(torch.sum(torch.exp({{x}}), dim={d}{k}))"]
    elif kind == "norm2":
        forms = [f"torch.norm({{x}}, p=2, dim={d}{k})", f"torch.norm({{x}}, dim={d}{k})", f"{{a}}.norm(dim={d}{k})", f"{{a}}.norm(p=2, dim={d}{k})", f"torch.linalg.norm({{x}}, dim={d}{k})", f"torch.linalg.vector_norm({{x}}, dim={d}{k})", f"torch.sqrt(torch.sum({{a}} ** 2, dim={d}{k}))", f"{{a}}.pow(2).sum(dim={d}{k}).sqrt()", f"torch.sqrt(({{n}} * {{n}}).sum(dim={d}{k}))"]
        if not one:
            forms = forms[-3:]
    elif kind == "norm1":
        forms = [f"torch.norm({{x}}, p=1, dim={d}{k})", f"{{a}}.norm(p=1, dim={d}{k})", f"torch.linalg.vector_norm({{x}}, ord=1, dim={d}{k})"]
    elif kind == "norminf":
        forms = [f"torch.norm({{x}}, p=float('inf'), dim={d}{k})", f"{{a}}.norm(p=float('inf'), dim={d}{k})"]
    else:
        raise ValueError(f"no such reduction: {kind}")
    b.apply(rng.choice(forms), HINTS.get(kind), d=dim)
# fmt: on
