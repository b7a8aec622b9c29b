"""`tenure log`: what is on disk, without a broker."""
