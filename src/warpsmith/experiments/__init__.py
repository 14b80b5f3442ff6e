"""Benches: methods × proposers × tasks × repeats under equal budgets, their results and tables."""
