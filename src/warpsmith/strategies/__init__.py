"""The catalogue of strategies, one file each, and the templates that turn a set of them into code."""
