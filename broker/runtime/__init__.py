"""The broker's process: clock, event-loop turns, worker threads, child processes, containment of exceptions, exit codes."""
