"""`tenure log`: inspect log files on disk, without a broker."""
