"""The graphs product: code archives in, structural graphs out, no archive kept."""
