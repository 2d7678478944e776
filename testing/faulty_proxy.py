"""`python -m kordon.testing.faulty_proxy FAULT[:OF] run …`: the usual `kordon` but for one promise (`faults.py`)."""

from __future__ import annotations

import sys

from kordon.proxy.cli import main
from kordon.testing.faults import Fault, inject

if __name__ == "__main__":
    fault, _, of = sys.argv.pop(1).partition(":")
    inject(Fault(fault), of)
    main(prog_name="kordon")
