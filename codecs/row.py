"""The value of a struct: a dict whose fields are attributes as well."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, TypeVar, dataclass_transform

_T = TypeVar("_T")


@dataclass_transform(kw_only_default=True, eq_default=False)
class Row(dict[str, object]):
    """The fields of a message, or of a row in it; `kordon.codecs.bodies` tells type checkers which these are."""

    __slots__ = ()

    def copy(self) -> Self:
        """Returns another one with the same fields."""
        return self.__class__(self)

    if TYPE_CHECKING:

        def __getitem__(self, name: str, /) -> object: ...
        def get(self, name: str, default: _T, /) -> _T:  # type: ignore[override]
            """Returns a field, or `default` where the version does not have it."""
            ...

    else:

        def __getattr__(self, name):
            try:
                return self[name]
            except KeyError:
                raise AttributeError(name) from None

        __setattr__ = dict.__setitem__
