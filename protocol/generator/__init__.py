"""Development only: turns schemas into the classes of protocol/messages. Needs kio; nothing that serves imports it."""
