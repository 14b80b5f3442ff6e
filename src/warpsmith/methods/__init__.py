"""Methods of search: one small declarative file each, with a PLUGIN. No control flow: `run` reads them.

A method says what a proposer is shown, by which operators it is asked, in which order, and what is kept of the answers.
"""
