"""Tables of every kind, and what tests do to them."""
