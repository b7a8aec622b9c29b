"""What `tenure --help` says below the commands."""

from __future__ import annotations

EXIT_CODES = """\
exit codes of serve:
  0   stopped in order, by SIGTERM or SIGINT
  64  the command line cannot be understood
  65  the data directory holds what this version cannot serve
  69  an address cannot be listened on
  70  a defect of ours; the log has the traceback
  71  this system is not supported
  73  the data directory cannot be made or written
  74  reading or writing failed
  75  another process holds the data directory
  78  a setting is wrong

exit codes of health:
  0   ready
  1   not answering
  2   answering, but loading or suspended
  64  the command line cannot be understood
  78  a setting is wrong

exit codes of log:
  0   everything that was read is sound
  64  the command line cannot be understood
  65  something is damaged, cannot be read or was written by a newer version
  66  there is nothing to read at the path
  74  reading failed

exit codes of the commands for a cluster:
  0   done, or nothing was to be done
  1   the cluster refused, a part of it failed, or the answer was no
  64  the command line cannot be understood
  65  a file that was given cannot be understood
  66  no such group, topic, member or file
  69  no broker answers there, or it wants TLS or SASL
  70  a defect of ours
  74  standard output or a file cannot be read or written
  75  not now: loading, or no coordinator or leader within the timeout
  76  the cluster does not serve such a request, or only older versions
  77  not allowed for this user
"""
