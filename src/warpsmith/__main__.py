"""`python -m warpsmith`: the same command as the console script."""

from __future__ import annotations

from warpsmith.cli.main import main

if __name__ == "__main__":
    main()
