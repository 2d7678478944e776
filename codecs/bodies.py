"""The types of message bodies and of the rows in them: `ListOffsetsRequest`, `ListOffsetsRequestTopic` and so on.

Type checkers read them in `bodies.pyi`. At run time each of these names is `Row`, so a body costs what it would cost
without a type, and nobody can ask which type it has.

- A table names the type of its body: `REQUEST: Final[Message[ListOffsetsRequest]]`. So a type checker knows that
  `REQUEST.parse(version, data).topics[0].name` is a `str`, and refuses a misspelt field.
- What is built is checked where it is written as `ListOffsetsRequestTopic(name="orders")`. A field that is left out
  has its default.
- An `Api` has the types of a request and its response: `await links.ask_any(…, metadata.API, versions,
  MetadataRequest(topics=None))` is a `MetadataResponse`.
- A version may lack some fields. `row.get("leader_epoch", -1)` returns a default there, and has the default's type.
- `row["leader_epoch"]` is an `object` for type checkers. It is for code that learns a field's name when it runs.

`testing/messages/make_bodies.py` writes `bodies.pyi` from the tables. A test compares them.
"""

from __future__ import annotations

from kordon.codecs.row import Row


def __getattr__(name: str) -> type[Row]:
    """Returns what stands for a type of `bodies.pyi` at run time."""
    if not name[0].isupper():  # what interpreters and tools ask any module for
        raise AttributeError(name)
    return Row
