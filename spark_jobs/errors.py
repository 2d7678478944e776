"""What can keep an audit from being made.

RuntimeError
└── CannotCheck        the message says what is missing, and what to do
    └── MissingPart    a program, a package or a jar is not installed
"""

from __future__ import annotations


class CannotCheck(RuntimeError):  # noqa: N818 - says what it means for the audit
    """The audit cannot be made: exit code 2."""


class MissingPart(CannotCheck):
    """Something that the audit is made with is not installed; the message names what brings it."""
