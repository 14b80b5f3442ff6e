"""The version, in one place; the harness version also keys the result cache."""

__version__ = "0.2.0"
