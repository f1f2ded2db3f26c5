"""Long load on one server: what it does cold, and what it still does when the device is hot."""
