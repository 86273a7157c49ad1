"""The graphs surface: code archives in, structural graphs out, nothing kept."""
