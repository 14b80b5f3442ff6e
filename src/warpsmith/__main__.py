"""The command line: `python -m warpsmith`, and what the console script calls."""

from __future__ import annotations

import sys


def main() -> None:
    """Run it. An interrupt while its modules are still being loaded is answered like any other."""
    try:
        from warpsmith.cli.main import main as run
    except KeyboardInterrupt:
        sys.stderr.write("interrupted.\n")
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
