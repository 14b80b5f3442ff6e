"""Deep verification of winners: sanitizers, processes without a judge, certificates."""
