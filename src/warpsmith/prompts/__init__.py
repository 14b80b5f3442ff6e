"""From a brief to a prompt (`renderer`) and from a reply to a proposal (`parser`): one of each, for all methods.

What is asked for is worded in `templates/`; which information goes in, the brief has decided already.
"""
