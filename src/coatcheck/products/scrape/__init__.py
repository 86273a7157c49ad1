"""The scrape product: a service that fetches pages as jobs and stores their bodies as artifacts."""
