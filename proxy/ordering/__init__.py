"""Managed topics as pure values: where each virtual partition lives, has lived, and what may be written there.

No module of this package does I/O or knows a clock; an import contract keeps it so.
"""
