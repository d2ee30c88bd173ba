"""Arithmetic in recipes: `count: = 50000 / N`. A value that begins with `=` is computed from the recipe's others.

Numbers, the names of other parameters (`partition.clients`, dashes as underscores; `N` for that one and `C` for
participation, as the papers call them), + − * / // % **, brackets, min, max and round. Nothing else: it is parsed, not
run.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

SHORT = {"N": "partition.clients", "C": "participation"}
_LONGEST = 200
_LARGEST_POWER = 64
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow,
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[..., Any]] = {"min": min, "max": max, "round": round}


def is_expression(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("=")


def evaluated(text: str, value_of: Callable[[str], Any]) -> int | float:
    """The value; a whole number where nothing is lost by it. `value_of` knows the other parameters.

    Raises `ValueError` where it is no arithmetic, or has no value.
    """
    body = text.removeprefix("=").strip()
    if len(body) > _LONGEST:
        raise ValueError(f"an expression has at most {_LONGEST} characters, found {len(body)}")
    try:
        found = _value(ast.parse(body, mode="eval").body, value_of)
    except SyntaxError:
        raise ValueError(f"{body!r} is no arithmetic") from None
    except (ZeroDivisionError, OverflowError, RecursionError, TypeError) as error:
        raise ValueError(f"{body!r} has no value: {error}") from None
    if isinstance(found, float) and found.is_integer() and abs(found) < 2**53:
        return int(found)
    return found


def _value(node: ast.expr, value_of: Callable[[str], Any]) -> int | float:
    match node:
        case ast.Constant(value=bool()):
            pass
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.Name() | ast.Attribute():
            return _named(_target(node), value_of)
        case ast.UnaryOp(op=ast.USub()):
            return -_value(node.operand, value_of)
        case ast.BinOp() if type(node.op) in _OPERATORS:
            left, right = _value(node.left, value_of), _value(node.right, value_of)
            if isinstance(node.op, ast.Pow) and abs(right) > _LARGEST_POWER:
                raise ValueError(f"a power of more than {_LARGEST_POWER}: {ast.unparse(node)}")
            result = _OPERATORS[type(node.op)](left, right)
            if not isinstance(result, int | float):
                raise ValueError(f"{ast.unparse(node)} is not a real number")
            return result
        case ast.Call(func=ast.Name(id=name), keywords=[]) if name in _FUNCTIONS and node.args:
            result = _FUNCTIONS[name](*(_value(argument, value_of) for argument in node.args))
            if isinstance(result, int | float):
                return result
    raise ValueError(f"{ast.unparse(node)!r} is no arithmetic over numbers and names of parameters")


def _target(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return SHORT.get(node.id, node.id)
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id.replace('_', '-')}.{node.attr}"
    raise ValueError(f"{ast.unparse(node)!r} names no parameter")


def _named(target: str, value_of: Callable[[str], Any]) -> int | float:
    value = value_of(target)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{target} is {'not given' if value is None else repr(value)}, and a number is needed")
    return value
