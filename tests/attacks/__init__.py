"""Real attempts to fool the evaluator, and beside each an honest kernel that uses the same technique."""
