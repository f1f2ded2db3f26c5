"""One file per experiment; a file that has an ``EXPERIMENT`` is found by itself."""
