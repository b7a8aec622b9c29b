"""What `tenure serve --test-control` needs of the commands."""
