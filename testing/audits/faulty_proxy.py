"""A `kordon` but for one promise (`faults.py`).

`python -m kordon.testing.audits.faulty_proxy FAULT[:OF] PROGRAM run …`: PROGRAM is the module that
runs it: `kordon.proxy`, or one of tests.
"""

from __future__ import annotations

import runpy
import sys

from kordon.testing.audits.faults import Fault, inject

if __name__ == "__main__":
    fault, _, of = sys.argv.pop(1).partition(":")
    inject(Fault(fault), of)
    runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
