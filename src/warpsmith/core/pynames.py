"""Gives the local names of a Python program new ones in the order in which they appear, and drops its docstrings.

Only for comparing programs: the tree is not meant to be run. A name stays wherever it might be known outside: as an
attribute, a keyword, an import, a class, or as text.
"""

from __future__ import annotations

import ast
import builtins
import re

_BY_NAME = frozenset({"eval", "exec", "globals", "locals", "vars", "getattr", "setattr", "__dict__"})
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def renamed_tree(tree: ast.Module, fixed: frozenset[str]) -> ast.Module:
    """The same tree, changed in place."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | _Function):
            _drop_docstring(node)
    _rename(tree, _own_names(tree) - fixed)
    return tree


def _drop_docstring(node: ast.Module | ast.ClassDef | _Function) -> None:
    first = node.body[0] if node.body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        del node.body[0]


def _own_names(tree: ast.Module) -> set[str]:
    """Variables, parameters and functions that the file itself binds, less those that something else may look up."""
    bound: set[str] = set()
    kept: set[str] = set(dir(builtins))
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Store):
                bound.add(node.id)
            elif node.id in _BY_NAME:
                return set()
        elif isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
            return set()
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, _Function):
            bound.add(node.name)
        else:
            kept |= _kept(node)
    return bound - kept


def _kept(node: ast.AST) -> set[str]:
    match node:
        case ast.ClassDef():
            plain = [part for part in node.body if not isinstance(part, _Function)]
            attributes = {n.id for part in plain for n in ast.walk(part) if isinstance(n, ast.Name)}
            return {node.name, *attributes, *(part.name for part in node.body if isinstance(part, _Function))}
        case ast.alias():
            return {node.asname or node.name.partition(".")[0], node.name}
        case ast.keyword(arg=str(name)):
            return {name}
        case ast.Global() | ast.Nonlocal():
            return set(node.names)
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            return {name}
        case ast.MatchMapping(rest=str(name)):
            return {name}
        case ast.Constant(value=str(text)):
            return set(re.findall(r"\w+", text))  # "BLOCK" of a configuration, a source for another compiler
    return set()


def _rename(tree: ast.AST, names: set[str]) -> None:
    known: dict[str, str] = {}

    def new(name: str) -> str:
        return known.setdefault(name, f"%{len(known)}") if name in names else name

    # In the order of the text, which `ast.walk` does not keep, and without recursion.
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Name):
            node.id = new(node.id)
        elif isinstance(node, ast.arg):
            node.arg = new(node.arg)
        elif isinstance(node, _Function):
            node.name = new(node.name)
        todo += reversed(list(ast.iter_child_nodes(node)))
