"""What is watched while a run lasts, and a finished run for those who watch later."""
