"""Scripts are run as programs of their own; importing the clients here would judge their warnings."""

collect_ignore_glob = ["script_*.py"]
