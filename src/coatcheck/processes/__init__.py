"""Operating system processes: identify this one, detect dead ones, kill orphans."""
