"""From a brief to a prompt (`renderer`) and from a reply to a proposal (`parser`): one of each, for all methods.

The wording is in `templates/`; the brief decides which information is shown.
"""
