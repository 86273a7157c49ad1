"""What a server and a worker make of the products that are on."""
