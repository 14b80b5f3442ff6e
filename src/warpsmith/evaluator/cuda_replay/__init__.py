"""Times a CUDA candidate without its host code: calls are recorded as data, the host is killed, the data is replayed.

record          in the candidate's process: reads what a call launches from a captured graph
call_data       the form of a recorded call
device_images   the device code that the candidate's files really contain
rules           which recorded calls may be replayed
rebuild         builds CUDA graphs from recorded calls
replayer        the process that launches them, in which no host code of the candidate ever ran
shared_memory   device memory at the same addresses in all these processes
handover        the judge's part
"""
