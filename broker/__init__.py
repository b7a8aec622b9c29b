"""The shell: sockets, threads, the clock. The only package that awaits."""
