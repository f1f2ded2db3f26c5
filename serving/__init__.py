"""The systems under test: models, the protocol they are served with, and the servers."""
