"""Has the functions of a module that is imported do what another text of its file says.

So a line can be changed where all that has been imported keeps what it knows: whoever holds a function has it changed.
What is done when a module or a class is made cannot be changed any more: constants, fields and defaults. What functions
have made before stays as it is.
"""

from __future__ import annotations

import gc
import inspect
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType


def swap(module: ModuleType, before: str, after: str) -> bool:
    """Changes a module's functions.

    Args:
        before: The text that it was imported by.
        after: The text that its functions are to follow.

    Returns:
        False: nothing was changed, as it cannot be done without importing the module anew.
    """
    file = module.__file__ or ""
    old, new = (compile(text, file, "exec", dont_inherit=True) for text in (before, after))
    try:
        changes = list(_changes(old, new))
    except _MadeOtherwiseError:
        return False
    made = [(found, to) for at, to in changes for found in _functions(at)]
    if not changes or {id(to) for _, to in made} != {id(to) for _, to in changes}:
        return False  # what was changed is no function yet, or none any more
    for found, to in made:
        found.__code__ = to
    return True


class _MadeOtherwiseError(Exception):
    """Raised when a module or a class would be made otherwise."""


def _changes(old: CodeType, new: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """Finds the outermost functions that differ, with what becomes of each."""
    for at, to in _parts(old, new):
        if not at.co_flags & inspect.CO_OPTIMIZED:  # the body of a class
            yield from _changes(at, to)
        elif not _is_same(at, to):
            if at.co_freevars != to.co_freevars:
                raise _MadeOtherwiseError
            yield at, to


def _parts(old: CodeType, new: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """Pairs what stands within a module or a class; raises _MadeOtherwiseError where all else differs, too."""
    if _own(old) != _own(new):
        raise _MadeOtherwiseError
    return zip(_within(old), _within(new), strict=True)


def _is_same(old: CodeType, new: CodeType) -> bool:
    return _own(old) == _own(new) and all(map(_is_same, _within(old), _within(new)))


def _within(code: CodeType) -> list[CodeType]:
    return [each for each in code.co_consts if isinstance(each, CodeType)]


def _own(code: CodeType) -> tuple[object, ...]:
    """Returns what code does itself, without what stands within it, and without the lines on which it stands."""
    constants = [repr(each) if not isinstance(each, CodeType) else "code" for each in code.co_consts]
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    return (code.co_qualname, code.co_code, constants, names, counts, code.co_exceptiontable)


def _functions(code: CodeType) -> Iterator[FunctionType]:
    """Finds all functions that were made of this code."""
    for each in gc.get_objects():
        if type(each) is FunctionType:
            found = each.__code__
            if (found.co_filename, found.co_firstlineno) == (code.co_filename, code.co_firstlineno) and _is_same(
                found, code
            ):
                yield each
