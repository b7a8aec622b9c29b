"""Several nodes over one set of logs: which node owns which log, and how the nodes find and reach one another."""
