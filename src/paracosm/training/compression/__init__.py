"""Messages made smaller: the codecs, and what is sent of a message."""
