"""Is a result right? The fp64 reference, the limits that follow from it, and whether a task is fit to judge by."""
