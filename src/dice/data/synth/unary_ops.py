"""Elementwise operators of one tensor: how people spell them, and the C statement that computes them.

Spellings use the templates of `Builder.apply`; "M:" marks a submodule (constructor after the colon).
Hyper-parameters are listed with their pools of names and a way to draw values; {p0}, {p1} stand for them
in spellings, and the operator's C code takes them as operands {0}, {1}.
"""

from dataclasses import dataclass
from typing import Any

from dice.data.synth.scalar_ops import RELU


@dataclass(frozen=True, slots=True, kw_only=True)
class Param:
    """A hyper-parameter of an operator."""

    names: tuple[str, ...]
    values: str
    """Kind of value to draw (see `values.draw`)."""
    default: str
    attr: str
    """Attribute of PyTorch's module that holds it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unary:
    """One operator."""

    name: str
    code: tuple[str, ...]
    spellings: tuple[str, ...] = ()
    """Without hyper-parameters, or with their defaults."""
    with_params: tuple[str, ...] = ()
    """Spellings that name {p0}, ..."""
    modules: tuple[str, ...] = ()
    """Constructor expressions; may name {p0}, ..."""
    params: tuple[Param, ...] = ()
    attrs: tuple[str, ...] = ()
    """Names for the submodule attribute."""
    needs: str = "any"
    """"any", "nonneg" or "pos": inputs it is sensible for."""
    gives: str = "any"
    grows: bool = False
    """Not applied to values that may already be large."""
    weight: float = 1.0
    hint: str = ""


def _act(name: str, code: str | tuple[str, ...], cls: str, *spellings: str, **kw: Any) -> Unary:
    lines = (code,) if isinstance(code, str) else code
    attrs = (name, "act", "activation", name, "act_fn", "nonlinearity")
    return Unary(
        name=name,
        code=lines,
        spellings=spellings,
        modules=(f"nn.{cls}()",) if cls else (),
        attrs=attrs,
        **kw,
    )


_SLOPE = Param(
    names=("negative_slope", "slope", "alpha", "leak", "leaky_slope"),
    values="slope",
    default="0.01",
    attr="negative_slope",
)
_ALPHA = Param(names=("alpha", "a", "elu_alpha"), values="alpha", default="1.0", attr="alpha")
_LAMBD = Param(
    names=("lambd", "lam", "threshold", "lambda_"), values="lambd", default="0.5", attr="lambd"
)

# fmt: off
ACTIVATIONS: tuple[Unary, ...] = (
    _act("relu", RELU, "ReLU", "F.relu({x})", "torch.relu({x})", "{a}.relu()", "F.relu({x})", "torch.relu({x})",
         "torch.clamp({x}, min=0)", "{a}.clamp(min=0)", "torch.clamp({x}, min=0.0)", "torch.clamp_min({x}, 0)",
         "torch.maximum({n}, torch.zeros_like({n}))", "torch.where({n} > 0, {n}, torch.zeros_like({n}))", weight=4.0, gives="nonneg", hint="activated"),
    _act("sigmoid", "v = 1.0f / (1.0f + expf(-v));", "Sigmoid", "torch.sigmoid({x})", "{a}.sigmoid()", "F.sigmoid({x})", "torch.sigmoid({x})",
         "1 / (1 + torch.exp(-{a}))", "1.0 / (1.0 + torch.exp(-{a}))", weight=2.5, gives="pos", hint="gate"),
    _act("tanh", "v = tanhf(v);", "Tanh", "torch.tanh({x})", "{a}.tanh()", "F.tanh({x})", "torch.tanh({x})", weight=2.5),
    _act("gelu", "v = 0.5f * v * (1.0f + erff(v * 0.70710678f));", "GELU", "F.gelu({x})", "F.gelu({x})", "F.gelu({x}, approximate='none')",
         "{n} * 0.5 * (1.0 + torch.erf({n} / math.sqrt(2.0)))", "0.5 * {n} * (1.0 + torch.erf({n} / math.sqrt(2.0)))", "0.5 * {n} * (1 + torch.erf({n} / 2 ** 0.5))", weight=2.5),
    Unary(name="gelu_tanh", code=("v = 0.5f * v * (1.0f + tanhf(0.79788456f * (v + 0.044715f * v * v * v)));",),
          spellings=("F.gelu({x}, approximate='tanh')", "F.gelu({x}, approximate='tanh')",
                     "0.5 * {n} * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * ({n} + 0.044715 * torch.pow({n}, 3.0))))",
                     "0.5 * {n} * (1 + torch.tanh(math.sqrt(2 / math.pi) * ({n} + 0.044715 * {n} ** 3)))",
                     "{n} * 0.5 * (1.0 + torch.tanh(0.7978845608 * ({n} + 0.044715 * {n}.pow(3))))",
                     "0.5 * {n} * (1.0 + torch.tanh(0.7978845608028654 * ({n} + 0.044715 * {n} * {n} * {n})))",
                     "0.5 * {n} * (1.0 + torch.tanh({n} * 0.7978845608 * (1.0 + 0.044715 * {n} * {n})))"),
          modules=("nn.GELU(approximate='tanh')", "nn.GELU('tanh')"), attrs=("gelu", "act", "activation", "act_fn"), weight=1.8),
    _act("silu", "v = v / (1.0f + expf(-v));", "SiLU", "F.silu({x})", "F.silu({x})", "torch.nn.functional.silu({x})", "{n} * torch.sigmoid({n})", "{n} * torch.sigmoid({n})",
         "torch.sigmoid({n}) * {n}", "{n} * {n}.sigmoid()", "{n} * F.sigmoid({n})", "{n} / (1 + torch.exp(-{n}))", "torch.mul({n}, torch.sigmoid({n}))", weight=3.0),
    _act("mish", "v = v * tanhf(v > 20.0f ? v : log1pf(expf(v)));", "Mish", "F.mish({x})", "F.mish({x})", "{n} * torch.tanh(F.softplus({n}))",
         "{n} * F.softplus({n}).tanh()", "torch.tanh(F.softplus({n})) * {n}", weight=1.6),
    _act("softplus", "v = v > 20.0f ? v : log1pf(expf(v));", "Softplus", "F.softplus({x})", "F.softplus({x})", "torch.log(1 + torch.exp({x}))", "torch.log1p(torch.exp({x}))", weight=1.6, gives="pos"),
    _act("softsign", "v = v / (1.0f + fabsf(v));", "Softsign", "F.softsign({x})", "{n} / (1 + torch.abs({n}))", "{n} / (1 + {n}.abs())", "{n} / (1.0 + torch.abs({n}))", "{n} / (torch.abs({n}) + 1)", weight=1.4),
    _act("selu", "v = 1.0507009873554805f * (v > 0.0f ? v : 1.6732632423543772f * expm1f(v));", "SELU", "F.selu({x})", "torch.selu({x})", "torch.selu({x})"),
    _act("hardsigmoid", "v = fminf(fmaxf(v / 6.0f + 0.5f, 0.0f), 1.0f);", "Hardsigmoid", "F.hardsigmoid({x})", "F.hardsigmoid({x})", "F.relu6({a} + 3) / 6", "torch.clamp({a} / 6 + 0.5, 0, 1)", weight=1.3, gives="nonneg"),
    _act("hardswish", "v = v * fminf(fmaxf(v + 3.0f, 0.0f), 6.0f) / 6.0f;", "Hardswish", "F.hardswish({x})", "F.hardswish({x})", "{n} * F.relu6({n} + 3) / 6", "{n} * torch.clamp({n} + 3, 0, 6) / 6", weight=1.3),
    _act("relu6", "v = fminf(fmaxf(v, 0.0f), 6.0f);", "ReLU6", "F.relu6({x})", "F.relu6({x})", weight=1.2, gives="nonneg"),
    _act("logsigmoid", "v = fminf(v, 0.0f) - log1pf(expf(-fabsf(v)));", "LogSigmoid", "F.logsigmoid({x})", "F.logsigmoid({x})", "torch.log(torch.sigmoid({x}))"),
    _act("tanhshrink", "v = v - tanhf(v);", "Tanhshrink", "F.tanhshrink({x})", "{n} - torch.tanh({n})", weight=0.7),
    Unary(name="leaky_relu", code=("v = v > 0.0f ? v : {0} * v;",), spellings=("F.leaky_relu({x})", "F.leaky_relu({x})"),
          with_params=("F.leaky_relu({x}, negative_slope={p0})", "F.leaky_relu({x}, negative_slope={p0})", "F.leaky_relu({x}, {p0})", "torch.nn.functional.leaky_relu({x}, {p0})",
                       "torch.where({n} > 0, {n}, {p0} * {n})", "torch.where({n} >= 0, {n}, {n} * {p0})", "torch.maximum({n}, {p0} * {n})"),
          modules=("nn.LeakyReLU({p0})", "nn.LeakyReLU(negative_slope={p0})", "nn.LeakyReLU()"), params=(_SLOPE,), attrs=("leaky_relu", "act", "activation", "lrelu", "leaky"), weight=2.2),
    Unary(name="elu", code=("v = v > 0.0f ? v : {0} * expm1f(v);",), spellings=("F.elu({x})", "F.elu({x})"),
          with_params=("F.elu({x}, alpha={p0})", "F.elu({x}, {p0})", "torch.where({n} > 0, {n}, {p0} * (torch.exp({n}) - 1))"),
          modules=("nn.ELU({p0})", "nn.ELU(alpha={p0})", "nn.ELU()"), params=(_ALPHA,), attrs=("elu", "act", "activation"), weight=1.6),
    Unary(name="celu", code=("v = v > 0.0f ? v : {0} * expm1f(v / {0});",), spellings=("F.celu({x})", "torch.celu({x})"),
          with_params=("F.celu({x}, alpha={p0})", "torch.celu({x}, {p0})"),
          modules=("nn.CELU({p0})", "nn.CELU(alpha={p0})", "nn.CELU()"), params=(_ALPHA,), attrs=("celu", "act", "activation"), weight=0.8),
    Unary(name="hardtanh", code=("v = fminf(fmaxf(v, {0}), {1});",), spellings=("F.hardtanh({x})",),
          with_params=("F.hardtanh({x}, {p0}, {p1})", "F.hardtanh({x}, min_val={p0}, max_val={p1})", "F.hardtanh({x}, min_val={p0}, max_val={p1})"),
          modules=("nn.Hardtanh()", "nn.Hardtanh({p0}, {p1})", "nn.Hardtanh(min_val={p0}, max_val={p1})"),
          params=(Param(names=("min_val", "lower", "min_value"), values="low", default="-1.0", attr="min_val"), Param(names=("max_val", "upper", "max_value"), values="high", default="1.0", attr="max_val")),
          attrs=("hardtanh", "act", "activation"), weight=1.5),
    Unary(name="softplus_beta", code=("v = v * {0} > {1} ? v : log1pf(expf(v * {0})) / {0};",),
          with_params=("F.softplus({x}, beta={p0}, threshold={p1})", "F.softplus({x}, {p0}, {p1})"), modules=("nn.Softplus({p0}, {p1})", "nn.Softplus(beta={p0}, threshold={p1})"),
          params=(Param(names=("beta", "softplus_beta"), values="beta", default="1.0", attr="beta"), Param(names=("threshold", "softplus_threshold"), values="twenty", default="20.0", attr="threshold")),
          attrs=("softplus", "act", "activation"), weight=0.5, gives="nonneg"),
    Unary(name="softshrink", code=("v = v > {0} ? v - {0} : (v < -{0} ? v + {0} : 0.0f);",), spellings=("F.softshrink({x})",),
          with_params=("F.softshrink({x}, lambd={p0})", "F.softshrink({x}, {p0})"), modules=("nn.Softshrink({p0})", "nn.Softshrink(lambd={p0})", "nn.Softshrink()"), params=(_LAMBD,), attrs=("softshrink", "act", "shrink"), weight=0.7),
    Unary(name="hardshrink", code=("v = fabsf(v) > {0} ? v : 0.0f;",), spellings=("F.hardshrink({x})",),
          with_params=("F.hardshrink({x}, lambd={p0})", "F.hardshrink({x}, {p0})"), modules=("nn.Hardshrink({p0})", "nn.Hardshrink(lambd={p0})", "nn.Hardshrink()"), params=(_LAMBD,), attrs=("hardshrink", "act", "shrink"), weight=0.7),
    Unary(name="threshold", code=("v = v > {0} ? v : {1};",),
          with_params=("F.threshold({x}, {p0}, {p1})", "F.threshold({x}, threshold={p0}, value={p1})"), modules=("nn.Threshold({p0}, {p1})",),
          params=(Param(names=("threshold", "thr", "cutoff"), values="lambd", default="0.5", attr="threshold"), Param(names=("value", "fill_value", "replacement"), values="small", default="0.0", attr="value")),
          attrs=("threshold", "act"), weight=0.7),
    Unary(name="quick_gelu", code=("v = v / (1.0f + expf(-{0} * v));",),
          with_params=("{n} * torch.sigmoid({p0} * {n})", "{n} * torch.sigmoid({p0} * {n})", "torch.sigmoid({n} * {p0}) * {n}"),
          params=(Param(names=("beta", "alpha", "scale", "swish_beta"), values="quick", default="1.702", attr=""),), weight=0.9),
    Unary(name="relu_squared", code=("v = v > 0.0f ? v * v : 0.0f;",), spellings=("F.relu({x}) ** 2", "torch.square(F.relu({x}))", "torch.relu({x}).pow(2)", "F.relu({x}).square()"), gives="nonneg", grows=True, weight=0.9),
)
# fmt: on


def _fn(name: str, code: str, *spellings: str, **kw: Any) -> Unary:
    return Unary(name=name, code=(code,), spellings=spellings, **kw)


# fmt: off
MATH: tuple[Unary, ...] = (
    _fn("exp", "v = expf(v);", "torch.exp({x})", "{a}.exp()", "torch.exp({x})", grows=True, gives="pos", weight=1.6),
    _fn("log", "v = logf(v);", "torch.log({x})", "{a}.log()", "torch.log({x})", needs="pos", weight=1.6),
    _fn("sqrt", "v = sqrtf(v);", "torch.sqrt({x})", "{a}.sqrt()", "torch.sqrt({x})", needs="nonneg", gives="nonneg", weight=1.4),
    _fn("rsqrt", "v = rsqrtf(v);", "torch.rsqrt({x})", "{a}.rsqrt()", "1.0 / torch.sqrt({x})", "1 / torch.sqrt({x})", needs="pos", gives="pos", weight=0.8),
    _fn("abs", "v = fabsf(v);", "torch.abs({x})", "{a}.abs()", "torch.abs({x})", gives="nonneg", weight=1.6),
    _fn("neg", "v = -v;", "-{a}", "torch.neg({x})", "{a}.neg()", weight=1.0),
    _fn("sin", "v = sinf(v);", "torch.sin({x})", "{a}.sin()", weight=0.9),
    _fn("cos", "v = cosf(v);", "torch.cos({x})", "{a}.cos()", weight=0.9),
    _fn("atan", "v = atanf(v);", "torch.atan({x})", "torch.arctan({x})", weight=0.4),
    _fn("square", "v = v * v;", "{a} ** 2", "torch.square({x})", "{a}.pow(2)", "torch.pow({x}, 2)", "{n} * {n}", "{a}.square()", grows=True, gives="nonneg", weight=1.6, hint="squared"),
    _fn("cube", "v = v * v * v;", "{a} ** 3", "{a}.pow(3)", "torch.pow({x}, 3)", "{n} * {n} * {n}", grows=True, weight=0.6),
    _fn("reciprocal", "v = 1.0f / v;", "torch.reciprocal({x})", "1.0 / {a}", "{a}.reciprocal()", "1 / {a}", needs="pos", gives="pos", weight=0.8),
    _fn("erf", "v = erff(v);", "torch.erf({x})", "{a}.erf()", "torch.special.erf({x})", weight=0.6),
    _fn("log1p", "v = log1pf(v);", "torch.log1p({x})", "{a}.log1p()", "torch.log(1 + {a})", "torch.log(1.0 + {a})", "torch.log({a} + 1)", needs="nonneg", gives="nonneg", weight=0.9),
    _fn("expm1", "v = expm1f(v);", "torch.expm1({x})", "torch.exp({x}) - 1", grows=True, weight=0.5),
    _fn("sign", "v = (float)((v > 0.0f) - (v < 0.0f));", "torch.sign({x})", "{a}.sign()", weight=0.4),
    _fn("floor", "v = floorf(v);", "torch.floor({x})", "{a}.floor()", weight=0.4),
    _fn("ceil", "v = ceilf(v);", "torch.ceil({x})", "{a}.ceil()", weight=0.4),
    _fn("round", "v = rintf(v);", "torch.round({x})", "{a}.round()", weight=0.3),
    _fn("trunc", "v = truncf(v);", "torch.trunc({x})", "{a}.trunc()", weight=0.2),
    _fn("frac", "v = v - truncf(v);", "torch.frac({x})", weight=0.2),
    _fn("sinh", "v = sinhf(v);", "torch.sinh({x})", grows=True, weight=0.2),
    _fn("cosh", "v = coshf(v);", "torch.cosh({x})", grows=True, gives="pos", weight=0.2),
    _fn("log2", "v = log2f(v);", "torch.log2({x})", needs="pos", weight=0.4),
    _fn("log10", "v = log10f(v);", "torch.log10({x})", needs="pos", weight=0.2),
    _fn("exp2", "v = exp2f(v);", "torch.exp2({x})", "2 ** {a}", grows=True, gives="pos", weight=0.3),
    _fn("asinh", "v = asinhf(v);", "torch.asinh({x})", weight=0.2),
)
# fmt: on
