"""A task and kernels for it that `warpsmith demo` and the README use; they also show how both are written."""
