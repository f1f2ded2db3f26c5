"""What one server on one machine can do, measured once and carried as one file."""
