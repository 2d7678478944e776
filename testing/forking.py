"""What a process imports that others are forked from (`forked_program.py`), and dies with the one that started it."""

# pyright: reportUnusedImport=false

import gc

import kordon.proxy.commands.cli
import kordon.proxy.process.service
import kordon.testing.audits.faults  # noqa: F401 - so that whoever is forked has them
from kordon.testing.java_process import die_with_parent

die_with_parent()
gc.collect()
gc.freeze()
"""Whoever is forked looks through none of it, and so need not copy the memory that it is in."""
