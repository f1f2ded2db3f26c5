"""The best setting of a server within objectives: searched, measured again, ready to deploy."""
