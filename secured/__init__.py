"""What a client needs to reach a secured cluster: its file of settings, TLS, and the login.

Both clients use it, that of the command (`cli.client`) and that of the pipeline (`pipeline.wire`). Only the path of the file is passed on,
never its values.
"""
