"""Devices, their measured peaks, and the bytes and operations of a task.

`device` finds devices and `roofline` computes limits, both without torch; `peaks` measures a device and `work` counts
operations, both with torch, in a process that may use the device.
"""
