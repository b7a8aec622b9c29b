"""The verbs of the test control: one file for each kind of thing that they act on."""
