"""A small HTTP/1.1 server for the ports of this process that answer in JSON."""
