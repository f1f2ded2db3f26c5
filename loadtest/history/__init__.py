"""What earlier runs found, in the order in which they were measured."""
