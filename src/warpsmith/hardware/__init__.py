"""What the machine is, how fast it can be, and what a task asks of it.

`device` names devices and `roofline` reasons about limits, both without torch; `peaks` measures and
`work` counts, both with torch, in a process that may own the device.
"""
