"""Turns a brief into a prompt (`renderer`) and a reply into a proposal (`parser`), for all methods.

The wording is in `templates/`; the brief decides which sections a prompt has.
"""
