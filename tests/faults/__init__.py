"""Faults of our own and of the machine: nothing lost, nothing wrongly judged, nothing left behind."""
