"""gloo's collectives: when each emulated member may send and receive, without any socket."""
