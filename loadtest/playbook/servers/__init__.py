"""Servers that are none of the product's backends; experiments compare with them."""
