"""Mutants of a module: one small thing in one of its functions is changed, as somebody could have got it wrong.

    <  <=  >  >=     one is taken for its neighbour: a millisecond early or late
    ==  is  in       turned round
    and  or  not     confused, or forgotten
    +  -  *  //      confused
    max  min         confused
    0, 1, 2, …       one more
    True  False      confused
    a call, an assignment to a field, a raise    forgotten
    return x         forgotten: None

Only what stands in functions is changed: what is computed when a module is imported cannot be exchanged afterwards.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import NamedTuple

_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_RECKONED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
}
_CALLED = {"max": "min", "min": "max", "any": "all", "all": "any"}
_BLOCKS = ("body", "orelse", "finalbody")
_Function = ast.FunctionDef | ast.AsyncFunctionDef


class Mutant(NamedTuple):
    """One changed thing."""

    path: Path
    line: int
    function: str
    """Its name within the module, with its class."""
    was: str
    becomes: str
    code: CodeType
    """What the function does now."""
    statement: int
    """The line at which the statement begins."""

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.function}\n    - {self.was}\n    + {self.becomes}"


class Change(NamedTuple):
    """A field of a syntax tree, and what it is changed to."""

    node: ast.AST
    field: str
    value: object
    shown: ast.stmt | ast.expr
    """What a reader is shown, before and after."""
    at: int
    """The line of the statement in which it stands."""
    forgotten: bool = False
    """Whether it is not there any more."""


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Every mutant of a module, from its first line to its last."""
    for statement in ast.parse(path.read_text()).body:
        for name, function in _functions(statement, ""):
            for change in _changes_in(function):
                was, before = _told(change.shown), getattr(change.node, change.field)
                setattr(change.node, change.field, change.value)
                becomes = "pass" if change.forgotten else _told(change.shown)
                code = _compiled(statement, path, name)
                setattr(change.node, change.field, before)
                yield Mutant(path, change.shown.lineno, name, was, becomes, code, change.at)


def _functions(statement: ast.stmt, within: str) -> Iterator[tuple[str, _Function]]:
    """Functions and methods; those inside a function are parts of it."""
    if isinstance(statement, _Function):
        yield f"{within}{statement.name}", statement
    elif isinstance(statement, ast.ClassDef):
        for part in statement.body:
            yield from _functions(part, f"{within}{statement.name}.")


def _compiled(statement: ast.stmt, path: Path, name: str) -> CodeType:
    """The code of a function, from the statement at the top of the module in which it stands."""
    module = ast.fix_missing_locations(ast.Module([statement], []))
    code = compile(module, str(path), "exec", flags=annotations.compiler_flag, dont_inherit=True)
    for part in name.split("."):
        code = next(one for one in code.co_consts if isinstance(one, CodeType) and one.co_name == part)
    return code


def _told(node: ast.stmt | ast.expr) -> str:
    return ast.unparse(node).splitlines()[0]


def _changes_in(function: _Function) -> Iterator[Change]:
    pending: list[tuple[ast.AST, int]] = [(function, function.lineno)]
    while pending:
        node, at = pending.pop()
        for field in _BLOCKS:
            yield from _forgetting(node, field)
        if isinstance(node, ast.stmt):
            at = node.lineno
            yield from _of_statement(node)
        elif isinstance(node, ast.expr):
            yield from _of_expression(node, at)
        pending += [(part, at) for part in reversed(_parts(node))]


def _parts(node: ast.AST) -> list[ast.AST]:
    """What is looked at inside something: what is done there. Types, and what is told to people, are not."""
    match node:
        case ast.FunctionDef(body=body) | ast.AsyncFunctionDef(body=body):
            return list(body)
        case ast.AnnAssign(value=value):
            return [] if value is None else [value]
        case ast.JoinedStr():
            return []
        case _:
            return list(ast.iter_child_nodes(node))


def _forgetting(node: ast.AST, field: str) -> Iterator[Change]:
    """A statement of a block is not there."""
    block = getattr(node, field, None)
    if not isinstance(block, list):  # an expression can have a `body`, too
        return
    for place, statement in enumerate(block):
        match statement:
            case ast.Expr(value=ast.Call()) | ast.Raise() | ast.Assign(targets=[ast.Attribute()]) | ast.AugAssign():
                without = [*block[:place], ast.Pass(), *block[place + 1 :]]
                yield Change(node, field, without, statement, statement.lineno, forgotten=True)
            case _:
                pass


def _of_statement(node: ast.stmt) -> Iterator[Change]:
    match node:
        case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            yield Change(node, "value", ast.Constant(None), node, node.lineno)
        case ast.If(test=test) if not isinstance(test, ast.Compare | ast.BoolOp | ast.UnaryOp):
            yield Change(node, "test", _not(test), node, node.lineno)


def _not(node: ast.expr) -> ast.expr:
    return ast.UnaryOp(ast.Not(), node)


def _of_expression(node: ast.expr, at: int) -> Iterator[Change]:
    match node:
        case ast.Compare(ops=ops):
            for place, op in enumerate(ops):
                yield Change(node, "ops", [*ops[:place], _COMPARED[type(op)](), *ops[place + 1 :]], node, at)
        case ast.BoolOp(op=op):
            yield Change(node, "op", ast.Or() if isinstance(op, ast.And) else ast.And(), node, at)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield Change(node, "operand", _not(operand), node, at)
        case ast.BinOp(op=op) if type(op) in _RECKONED:
            yield Change(node, "op", _RECKONED[type(op)](), node, at)
        case ast.IfExp(test=test) if not isinstance(test, ast.Compare | ast.BoolOp | ast.UnaryOp):
            yield Change(node, "test", _not(test), node, at)
        case ast.Call(func=ast.Name(id=called) as name) if called in _CALLED:
            yield Change(name, "id", _CALLED[called], node, at)
        case ast.Constant(value=bool() as value):
            yield Change(node, "value", not value, node, at)
        case ast.Constant(value=int() as value):
            yield Change(node, "value", value + 1, node, at)
        case _:
            pass


PASSED = "__passed__"
"""The name of the function that `telling` code calls, with its file and the line of each statement it comes to."""


def telling(path: Path) -> Iterator[CodeType]:
    """The code of every function of a module, made to tell which statements it comes to."""
    for statement in ast.parse(path.read_text()).body:
        names = [name for name, function in _functions(statement, "") if _tells(function, str(path))]
        for name in names:
            yield _compiled(statement, path, name)


def _tells(function: _Function, path: str) -> bool:
    for node in list(ast.walk(function)):
        for field in _BLOCKS:
            block = getattr(node, field, None)
            if isinstance(block, list):
                told = [(ast.parse(f"{PASSED}({path!r}, {one.lineno})").body[0], one) for one in block]
                setattr(node, field, [part for pair in told for part in pair])
    return True
