"""Where evaluations run: on this machine, on a Ray cluster, on a server."""
