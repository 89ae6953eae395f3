"""How each operation on numbers is written in StableHLO: (type of the result, arguments) -> result."""

from collections.abc import Callable
from typing import Any

from jax import lax
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo as hlo


def _plain(operation: Any) -> Callable[..., ir.Value]:
    return lambda kind, *args: operation(*args).result


def _comparison(direction: str) -> Callable[..., ir.Value]:
    def compare(kind: ir.Type, a: ir.Value, b: ir.Value) -> ir.Value:
        return hlo.CompareOp(a, b, hlo.ComparisonDirectionAttr.get(direction)).result

    return compare


OPERATIONS: dict[Any, Callable[..., ir.Value]] = {
    lax.add_p: _plain(hlo.AddOp),
    lax.sub_p: _plain(hlo.SubtractOp),
    lax.mul_p: _plain(hlo.MulOp),
    lax.div_p: _plain(hlo.DivOp),
    lax.rem_p: _plain(hlo.RemOp),
    lax.neg_p: _plain(hlo.NegOp),
    lax.max_p: _plain(hlo.MaxOp),
    lax.min_p: _plain(hlo.MinOp),
    lax.abs_p: _plain(hlo.AbsOp),
    lax.sign_p: _plain(hlo.SignOp),
    lax.floor_p: _plain(hlo.FloorOp),
    lax.ceil_p: _plain(hlo.CeilOp),
    lax.sqrt_p: _plain(hlo.SqrtOp),
    lax.rsqrt_p: _plain(hlo.RsqrtOp),
    lax.cbrt_p: _plain(hlo.CbrtOp),
    lax.sin_p: _plain(hlo.SineOp),
    lax.cos_p: _plain(hlo.CosineOp),
    lax.tan_p: _plain(hlo.TanOp),
    lax.tanh_p: _plain(hlo.TanhOp),
    lax.atan2_p: _plain(hlo.Atan2Op),
    lax.exp_p: _plain(hlo.ExpOp),
    lax.expm1_p: _plain(hlo.Expm1Op),
    lax.log_p: _plain(hlo.LogOp),
    lax.log1p_p: _plain(hlo.Log1pOp),
    lax.logistic_p: _plain(hlo.LogisticOp),
    lax.is_finite_p: _plain(hlo.IsFiniteOp),
    lax.and_p: _plain(hlo.AndOp),
    lax.or_p: _plain(hlo.OrOp),
    lax.xor_p: _plain(hlo.XorOp),
    lax.not_p: _plain(hlo.NotOp),
    lax.eq_p: _comparison("EQ"),
    lax.ne_p: _comparison("NE"),
    lax.lt_p: _comparison("LT"),
    lax.le_p: _comparison("LE"),
    lax.gt_p: _comparison("GT"),
    lax.ge_p: _comparison("GE"),
    lax.select_n_p: lambda kind, which, no, yes: hlo.SelectOp(which, yes, no).result,
    lax.convert_element_type_p: lambda kind, x: hlo.ConvertOp(kind, x).result,
}
