"""What callers see: each surface has its routes, its words and its handlers."""
