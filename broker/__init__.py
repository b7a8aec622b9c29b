"""The broker around the pure packages: sockets, threads, the clock. The only package that awaits."""
