"""The collection: kernels that ship with the package, what is known of them, and the device library they include."""
