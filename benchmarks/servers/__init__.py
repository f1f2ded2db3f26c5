"""Public inference servers: one file each says what it needs and how it is asked; ``apps`` has what
each of them runs, in an environment of its own.
"""
