"""A recipe over a network: the same plan, stages and files as `run`, each participant in its own home.

Flower carries the messages. What is said here knows nothing of Flower, except `server_app`, `client_app` and
`records`.
"""
