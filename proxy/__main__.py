"""`python -m kordon.proxy` is `kordon`."""

from kordon.proxy.commands.cli import main

if __name__ == "__main__":
    main(prog_name="kordon")
