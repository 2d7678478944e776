"""`python -m kordon.testing.faulty_proxy FAULT run …`: the usual `kordon`, with one promise broken (`faults.py`)."""

from __future__ import annotations

import sys

from kordon.proxy.cli import main
from kordon.testing.faults import Fault, inject

if __name__ == "__main__":
    inject(Fault(sys.argv.pop(1)))
    main(prog_name="kordon")
