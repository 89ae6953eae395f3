"""EXPRESSIONS: "=crank/2 + 0.1" as a number of the parameters. No jax inside.

    + - * / **, brackets, numbers, pi, names of parameters, sin cos tan sqrt abs

The text is parsed into a tree of which only these pieces are accepted; nothing is executed. The numbers may be
anything that has arithmetic, so that derivatives go through.
"""

import ast
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .._names import nearest

_LONGEST = 500  # letters
_OPERATORS: dict[type, Callable] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
FUNCTIONS = ("sin", "cos", "tan", "sqrt", "abs")


@dataclass(frozen=True)
class Expression:
    """A parsed expression: `value(numbers, functions)`."""

    text: str
    tree: ast.expr

    def value(self, numbers: Mapping[str, Any], functions: Mapping[str, Callable]) -> Any:
        return _value(self.tree, {"pi": math.pi, **numbers}, functions)


def is_expression(value: object) -> bool:
    return isinstance(value, str) and value.startswith("=")


def expression(text: str, known: list[str]) -> Expression:
    """Raises ValueError, in words."""
    body = text[1:].strip()
    if len(body) > _LONGEST:
        raise ValueError(f"is an expression of {len(body)} letters; the limit is {_LONGEST}")
    try:
        tree = ast.parse(body, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError(f'is "{text}", which is no expression; write for example "=crank/2 + 0.1"') from None
    _check(tree, text, known)
    return Expression(text, tree)


def _check(tree: ast.expr, text: str, known: list[str]) -> None:
    if isinstance(tree, ast.BinOp) and type(tree.op) in _OPERATORS:
        _check(tree.left, text, known)
        _check(tree.right, text, known)
        if isinstance(tree.op, ast.Pow) and not (_is_number(tree.right) and _number(tree.right) <= 16):
            raise ValueError(f'is "{text}": a power must be a number up to 16')
    elif isinstance(tree, ast.UnaryOp) and type(tree.op) in _OPERATORS:
        _check(tree.operand, text, known)
    elif isinstance(tree, ast.Name):
        if tree.id not in known and tree.id != "pi":
            raise ValueError(f'is "{text}": there is no parameter "{tree.id}"; {nearest(tree.id, known)}')
    elif isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and tree.func.id in FUNCTIONS:
        if len(tree.args) != 1 or tree.keywords:
            raise ValueError(f'is "{text}": {tree.func.id} takes one number')
        _check(tree.args[0], text, known)
    elif not _is_number(tree):
        names = ", ".join(FUNCTIONS)
        raise ValueError(f'is "{text}": only + - * / **, brackets, numbers, parameters, pi and {names} are allowed')


def _is_number(tree: ast.expr) -> bool:
    return isinstance(tree, ast.Constant) and type(tree.value) in (int, float) and math.isfinite(_number(tree))


def _number(tree: ast.expr) -> int | float:
    assert isinstance(tree, ast.Constant) and isinstance(tree.value, int | float)
    try:
        return tree.value if abs(tree.value) <= 16 else float(tree.value)
    except OverflowError:
        return math.inf


def _value(tree: ast.expr, numbers: Mapping[str, Any], functions: Mapping[str, Callable]) -> Any:
    if isinstance(tree, ast.BinOp):
        left, right = (_value(side, numbers, functions) for side in (tree.left, tree.right))
        return _OPERATORS[type(tree.op)](left, right)
    if isinstance(tree, ast.UnaryOp):
        return _OPERATORS[type(tree.op)](_value(tree.operand, numbers, functions))
    if isinstance(tree, ast.Call):
        assert isinstance(tree.func, ast.Name)
        return functions[tree.func.id](_value(tree.args[0], numbers, functions))
    if isinstance(tree, ast.Name):
        return numbers[tree.id]
    return _number(tree)
