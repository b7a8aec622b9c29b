"""What a process of the broker runs on: the clock, the turn of the loop, threads, child processes, faults contained."""
