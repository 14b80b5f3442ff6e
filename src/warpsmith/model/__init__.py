"""The nouns every other room speaks in: no torch, no subprocess, nothing but the standard library."""
