"""The comparison: a matrix of methods × proposers × tasks × repeats under equal budgets, and what it says."""
